#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::kernels {

/// `f32`: rows as computed. `packed`: the values that cache rounding leaves, in as few bytes as
/// hold them.
enum class KvFormat : std::uint8_t { f32, packed };

/// Whether cached rows are rounded (FP8 for KV rows, Hadamard and FP4 for indexer vectors) as in
/// the model's reference. `packed` needs `on`.
enum class CacheRounding : std::uint8_t { off, on };

inline constexpr std::uint32_t kFp8Block = 64;  // dims that share a scale, KV rows
inline constexpr std::uint32_t kFp4Block = 32;  // the same, indexer rows
inline constexpr std::uint64_t kPlaneAlignmentBytes = 256;

/// A region of cached KV rows (window ring or compressed rows of one layer). Both K and V.
///
///     f32:     [row_capacity, head_dim] float32
///     packed:  codes      [row_capacity, head_dim - rope_dim] E4M3
///              exponents  [row_capacity, scale stride] uint8, scale = 2^(e - 127)
///              rope tail  [row_capacity, rope_dim] float16
///
/// each plane starting at a multiple of 256 bytes; the scale stride is ceil((head_dim - rope_dim) /
/// 64) rounded up to a multiple of 8, so that a row's exponents are one aligned 8-byte load for
/// head_dim 512.
struct KvRows {
    void* base = nullptr;  // kv_rows_bytes(...) bytes, aligned to 256
    KvFormat format = KvFormat::f32;
    std::uint32_t row_capacity = 0;
    std::uint32_t head_dim = 0;
    std::uint32_t rope_dim = 0;  // the trailing dims
};

/// A region of indexer rows of one layer.
///
///     f32:     [row_capacity, dim] float32
///     packed:  codes      [row_capacity, dim / 2]: E2M1 with sign in bit 3, element 2i in the low
///     nibble
///              exponents  [row_capacity, ceil(dim / 32) rounded up to 4] uint8, scale = 2^(e -
///              127)
///
/// each plane starting at a multiple of 256 bytes.
struct IndexerRows {
    void* base = nullptr;  // indexer_rows_bytes(...) bytes, aligned to 256
    KvFormat format = KvFormat::f32;
    std::uint32_t row_capacity = 0;
    std::uint32_t dim = 0;  // a power of two
};

/// Where the planes of a region start, from its base, and how far rows are apart in each.
struct PlaneOffsets {
    std::uint64_t exponents_bytes = 0;
    std::uint64_t tail_bytes = 0;  // KV rows only
    std::uint64_t end_bytes = 0;   // size of the region, a multiple of 256
    std::uint32_t code_stride_bytes = 0;
    std::uint32_t exponent_stride_bytes = 0;
};

[[nodiscard]] PlaneOffsets kv_plane_offsets(std::uint32_t rows, std::uint32_t head_dim,
                                            std::uint32_t rope_dim);
[[nodiscard]] PlaneOffsets indexer_plane_offsets(std::uint32_t rows, std::uint32_t dim);

/// Bytes of a region of `rows` rows, a multiple of 256 in either format.
[[nodiscard]] std::uint64_t kv_rows_bytes(KvFormat format, std::uint32_t rows,
                                          std::uint32_t head_dim, std::uint32_t rope_dim);
[[nodiscard]] std::uint64_t indexer_rows_bytes(KvFormat format, std::uint32_t rows,
                                               std::uint32_t dim);

}  // namespace plimsoll::kernels
