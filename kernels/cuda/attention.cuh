#pragma once

#include "kernels/cuda/kv_rows.cuh"

// What the attention kernels share: the list of rows a token sees, and their decoding to float16
// tiles in shared memory for tensor cores.

namespace plimsoll::kernels::cuda {

// The rows of a token.

struct AttentionRows {
    KvRegion ring;
    KvRegion compressed;
    const float* chunk_rows;  // [T, head_dim] from the position of the chunk on
    const std::int32_t* selected;
    const std::int32_t* selected_count;
    std::uint32_t selected_stride;
    std::uint32_t window;
    std::uint32_t ratio;
    std::uint32_t head_dim;
};

inline AttentionRows attention_rows(const AttentionParams& params) {
    PLIMSOLL_KERNEL_CHECK(params.head_dim <= kHeadDimMax, "heads are wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.window > 0, "a token sees itself");
    PLIMSOLL_KERNEL_CHECK(params.ring.row_capacity + 1 >= params.window,
                          "the ring must hold the window but for the token itself");
    PLIMSOLL_KERNEL_CHECK((params.selected == nullptr) == (params.selected_count == nullptr),
                          "selected rows come with their counts");
    return {
        kv_region(params.ring), kv_region(params.compressed), params.chunk_rows, params.selected,
        params.selected_count,  params.selected_stride,       params.window,     params.ratio,
        params.head_dim};
}

/// One token's list: window positions, then compressed rows.
struct TokenRows {
    const std::int32_t* selected;  // of this token, or null
    std::uint32_t n_window;
    std::uint32_t n_rows;       // in all
    std::uint32_t n_from_ring;  // the first rows, before the chunk
    std::uint32_t window_slot;  // of row 0 in the ring
    std::uint64_t chunk_first;  // row of chunk_rows where list index n_from_ring lies
};

/// Rows of token `token` of a chunk at `position`; `n_selected` counts where rows are selected.
/// Positions before `chunk_position` are in the ring.
__device__ __forceinline__ TokenRows token_rows_at(const AttentionRows& rows,
                                                   std::uint64_t position, std::uint32_t n_selected,
                                                   std::uint32_t token,
                                                   std::uint64_t chunk_position) {
    const std::uint64_t window_first = position + 1 > rows.window ? position + 1 - rows.window : 0;
    TokenRows list;
    list.selected = nullptr;
    list.n_window = static_cast<std::uint32_t>(position + 1 - window_first);
    list.n_from_ring = window_first < chunk_position
                           ? static_cast<std::uint32_t>(chunk_position - window_first)
                           : 0;
    list.chunk_first = window_first < chunk_position ? 0 : window_first - chunk_position;
    list.window_slot = static_cast<std::uint32_t>(window_first % rows.ring.row_capacity);
    std::uint32_t n_compressed =
        rows.ratio == 0 ? 0 : static_cast<std::uint32_t>((position + 1) / rows.ratio);
    if (rows.selected != nullptr) {
        list.selected = rows.selected + std::uint64_t{token} * rows.selected_stride;
        n_compressed = n_selected;
    }
    list.n_rows = list.n_window + n_compressed;
    return list;
}

/// Rows of token `token` of a chunk whose token 0 is at first_position. Positions before
/// `chunk_position` are in the ring: first_position, or for decoding the one behind the token.
__device__ __forceinline__ TokenRows token_rows(const AttentionRows& rows,
                                                std::uint64_t first_position, std::uint32_t token,
                                                std::uint64_t chunk_position) {
    // Before the position, which is itself on its way from memory, is used.
    std::uint32_t n_selected = 0;
    if (rows.selected != nullptr)
        n_selected = static_cast<std::uint32_t>(rows.selected_count[token]);
    return token_rows_at(rows, first_position + token, n_selected, token, chunk_position);
}

/// Index in the compressed region of row i of the list; anything where row i is none of them.
__device__ __forceinline__ std::uint32_t compressed_index(const TokenRows& list, std::uint32_t i) {
    if (i < list.n_window || i >= list.n_rows) return 0;
    const std::uint32_t n = i - list.n_window;
    return list.selected != nullptr ? static_cast<std::uint32_t>(list.selected[n]) : n;
}

/// Row i of the list; no row past its end.
__device__ __forceinline__ RowPlace listed_row(const AttentionRows& rows, const TokenRows& list,
                                               std::uint32_t i, std::uint32_t compressed) {
    if (i >= list.n_rows) return {};
    if (i >= list.n_window) return row_place(rows.compressed, compressed);
    if (i >= list.n_from_ring)
        return row_place(rows.chunk_rows +
                         (list.chunk_first + i - list.n_from_ring) * rows.head_dim);
    // The window is at most one row longer than the ring, so one turn is enough.
    const std::uint32_t slot = list.window_slot + i;
    return row_place(rows.ring,
                     slot >= rows.ring.row_capacity ? slot - rows.ring.row_capacity : slot);
}

// Tiles of float16 rows. A row is kHeadDim halves, zeros past head_dim, and 16 bytes of padding:
// eight rows at one column then lie in different banks, which is what load_matrix reads at once.

template <int kHeadDim>
inline constexpr std::uint32_t kTileRowHalves = kHeadDim + 8;

/// A row is decoded in units of 16 elements: one 16-byte load of codes.
inline constexpr std::uint32_t kUnitElements = 16;

/// How units of a row are stored.
struct UnitShape {
    std::uint32_t n_code_units;  // E4M3 where packed
    std::uint32_t n_units;       // the others are the tail, float16
};
__device__ __forceinline__ UnitShape unit_shape(const AttentionRows& rows) {
    // All regions of a layer split a head alike; either may be absent.
    const std::uint32_t rope_dim =
        rows.ring.base != nullptr ? rows.ring.rope_dim : rows.compressed.rope_dim;
    return {(rows.head_dim - rope_dim) / kUnitElements, rows.head_dim / kUnitElements};
}

/// A unit as loaded, or two of packed rows. Loading and converting are apart so that several loads
/// are in flight, or tensor-core work lies between.
struct RawUnit {
    uint4 part[4];  // f32: all; tail: two of them; codes: one, and the exponent in the next one's x
};

/// A unit of a packed row takes parts kPacked and kPacked + 1, one of a float32 row all four.
template <int kPacked>
__device__ __forceinline__ void load_unit(RawUnit& raw, const RowPlace& place,
                                          const UnitShape& shape, std::uint32_t unit) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const bool present = place.data != nullptr && unit < shape.n_units;
    if (place.exponents == nullptr) {
        const auto* from = reinterpret_cast<const uint4*>(place.data) + 4 * unit;
#pragma unroll
        for (int i = 0; i < 4; ++i) raw.part[i] = present ? from[i] : zero;
    } else if (unit < shape.n_code_units) {
        raw.part[kPacked] = reinterpret_cast<const uint4*>(place.data)[unit];
        raw.part[kPacked + 1].x = place.exponents[unit / (kFp8Block / kUnitElements)];
    } else {
        const auto* from =
            reinterpret_cast<const uint4*>(place.tail) + 2 * (unit - shape.n_code_units);
        raw.part[kPacked] = present ? from[0] : zero;
        raw.part[kPacked + 1] = present ? from[1] : zero;
    }
}

__device__ __forceinline__ std::uint32_t half_bits(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return static_cast<std::uint32_t>(__half_as_ushort(__low2half(pair))) |
           (static_cast<std::uint32_t>(__half_as_ushort(__high2half(pair))) << 16);
}
__device__ __forceinline__ __half2 half_pair(std::uint32_t bits) {
    return __halves2half2(__ushort_as_half(static_cast<unsigned short>(bits & 0xffffu)),
                          __ushort_as_half(static_cast<unsigned short>(bits >> 16)));
}
__device__ __forceinline__ std::uint32_t half_pair_bits(__half2 pair) {
    return static_cast<std::uint32_t>(__half_as_ushort(__low2half(pair))) |
           (static_cast<std::uint32_t>(__half_as_ushort(__high2half(pair))) << 16);
}

/// Two E4M3 codes, in the high bytes of the halves, times `scale`. An E4M3 code's exponent and
/// mantissa, moved to a half's place, are the value times 2^-8, subnormal ones too.
__device__ __forceinline__ std::uint32_t halves_from_codes(std::uint32_t high_bytes,
                                                           __half2 scale) {
    const std::uint32_t bits = (high_bytes & 0x80008000u) | ((high_bytes & 0x7f007f00u) >> 1);
    return half_pair_bits(__hmul2(half_pair(bits), scale));
}

/// Eight codes as eight halves.
__device__ __forceinline__ uint4 halves_from_codes(std::uint32_t a, std::uint32_t b,
                                                   __half2 scale) {
    return make_uint4(halves_from_codes(__byte_perm(a, 0, 0x1404), scale),
                      halves_from_codes(__byte_perm(a, 0, 0x3424), scale),
                      halves_from_codes(__byte_perm(b, 0, 0x1404), scale),
                      halves_from_codes(__byte_perm(b, 0, 0x3424), scale));
}

__device__ __forceinline__ uint4 halves_from_floats(const uint4& a, const uint4& b) {
    return make_uint4(half_bits(__uint_as_float(a.x), __uint_as_float(a.y)),
                      half_bits(__uint_as_float(a.z), __uint_as_float(a.w)),
                      half_bits(__uint_as_float(b.x), __uint_as_float(b.y)),
                      half_bits(__uint_as_float(b.z), __uint_as_float(b.w)));
}

/// Sixteen halves of a unit at `to` (shared, aligned to 16).
template <int kPacked>
__device__ __forceinline__ void store_unit(__half* to, const RawUnit& raw, const RowPlace& place,
                                           const UnitShape& shape, std::uint32_t unit) {
    uint4 low, high;
    if (place.exponents == nullptr) {
        low = halves_from_floats(raw.part[0], raw.part[1]);
        high = halves_from_floats(raw.part[2], raw.part[3]);
    } else if (unit < shape.n_code_units) {
        // 2^(e - 127 + 8) in float16: e is at least 105, and above 134 nothing is finite.
        const uint4& codes = raw.part[kPacked];
        const std::uint32_t stored = min(raw.part[kPacked + 1].x, 134u);
        const std::uint32_t scale_bits = (stored > 105u ? stored - 104u : 1u) << 10;
        const __half2 scale = half_pair(scale_bits | (scale_bits << 16));
        low = halves_from_codes(codes.x, codes.y, scale);
        high = halves_from_codes(codes.z, codes.w, scale);
    } else {
        low = raw.part[kPacked];
        high = raw.part[kPacked + 1];
    }
    // Units of a row are 32 bytes apart: every other four store their second half first, so that
    // eight lanes always fill all banks.
    auto* out = reinterpret_cast<uint4*>(to);
    const bool swaps = (unit & 4u) != 0;
    out[swaps ? 1 : 0] = swaps ? high : low;
    out[swaps ? 0 : 1] = swaps ? low : high;
}

/// The share of a tile that a thread decodes: kSteps units.
template <int kHeadDim, int kRows, int kThreads>
struct TileDecoder {
    static constexpr std::uint32_t kUnits = kHeadDim / kUnitElements;
    static constexpr std::uint32_t kSteps = (kRows * kUnits + kThreads - 1) / kThreads;
    static constexpr std::uint32_t kRowHalves = kTileRowHalves<kHeadDim>;

    static __device__ __forceinline__ bool holds(std::uint32_t step) {
        return kRows * kUnits % kThreads == 0 || threadIdx.x + step * kThreads < kRows * kUnits;
    }
    static __device__ __forceinline__ bool is_packed(const RowPlace* places, std::uint32_t step) {
        return places[(threadIdx.x + step * kThreads) / kUnits].exponents != nullptr;
    }
    template <int kPacked = 0>
    static __device__ __forceinline__ void load(RawUnit& raw, const RowPlace* places,
                                                const UnitShape& shape, std::uint32_t step) {
        const std::uint32_t at = threadIdx.x + step * kThreads;
        if (holds(step)) load_unit<kPacked>(raw, places[at / kUnits], shape, at % kUnits);
    }
    template <int kPacked = 0>
    static __device__ __forceinline__ void store(__half* tile, const RawUnit& raw,
                                                 const RowPlace* places, const UnitShape& shape,
                                                 std::uint32_t step) {
        const std::uint32_t at = threadIdx.x + step * kThreads;
        if (holds(step))
            store_unit<kPacked>(tile + at / kUnits * kRowHalves + at % kUnits * kUnitElements, raw,
                                places[at / kUnits], shape, at % kUnits);
    }
};

// Fragments from tiles whose rows are `row_halves` apart.

/// A of m16 x k16: rows from `row`, columns from `column`.
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const __half* tile,
                                       std::uint32_t row_halves, std::uint32_t row,
                                       std::uint32_t column) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    load_matrix(a, tile + (row + lane % 16) * row_halves + column + lane / 16 * 8);
}
/// B of k16 x n16 (two fragments of n8), where B's columns are the tile's rows: keys.
__device__ __forceinline__ void load_b_keys(std::uint32_t (&b)[4], const __half* tile,
                                            std::uint32_t row_halves, std::uint32_t row,
                                            std::uint32_t column) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    load_matrix(b,
                tile + (row + lane % 8 + lane / 16 * 8) * row_halves + column + lane / 8 % 2 * 8);
}
/// B of k16 x n16, where B's rows are the tile's rows: values.
__device__ __forceinline__ void load_b_values(std::uint32_t (&b)[4], const __half* tile,
                                              std::uint32_t row_halves, std::uint32_t row,
                                              std::uint32_t column) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    load_matrix_transposed(b, tile + (row + lane % 16) * row_halves + column + lane / 16 * 8);
}
/// d[0] and d[1] += a . the two fragments of b.
__device__ __forceinline__ void mma_pair(float (&d0)[4], float (&d1)[4],
                                         const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
    const std::uint32_t b0[2] = {b[0], b[1]};
    const std::uint32_t b1[2] = {b[2], b[3]};
    mma_f16(d0, a, b0);
    mma_f16(d1, a, b1);
}

inline constexpr float kLog2E = 1.44269504088896340736f;

}  // namespace plimsoll::kernels::cuda
