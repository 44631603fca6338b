#include "kernels/kv_rows.hpp"

namespace plimsoll::kernels {
namespace {

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}
constexpr std::uint32_t ceil_div(std::uint32_t value, std::uint32_t divisor) {
    return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace

PlaneOffsets kv_plane_offsets(std::uint32_t rows, std::uint32_t head_dim, std::uint32_t rope_dim) {
    PlaneOffsets offsets;
    offsets.code_stride_bytes = head_dim - rope_dim;
    offsets.exponent_stride_bytes =
        static_cast<std::uint32_t>(align_up(ceil_div(head_dim - rope_dim, kFp8Block), 8));
    const std::uint64_t n_rows = rows;
    offsets.exponents_bytes = align_up(n_rows * offsets.code_stride_bytes, kPlaneAlignmentBytes);
    offsets.tail_bytes = offsets.exponents_bytes +
                         align_up(n_rows * offsets.exponent_stride_bytes, kPlaneAlignmentBytes);
    offsets.end_bytes = offsets.tail_bytes +
                        align_up(n_rows * rope_dim * sizeof(std::uint16_t), kPlaneAlignmentBytes);
    return offsets;
}

PlaneOffsets indexer_plane_offsets(std::uint32_t rows, std::uint32_t dim) {
    PlaneOffsets offsets;
    offsets.code_stride_bytes = dim / 2;
    offsets.exponent_stride_bytes =
        static_cast<std::uint32_t>(align_up(ceil_div(dim, kFp4Block), 4));
    const std::uint64_t n_rows = rows;
    offsets.exponents_bytes = align_up(n_rows * offsets.code_stride_bytes, kPlaneAlignmentBytes);
    offsets.tail_bytes = offsets.exponents_bytes +
                         align_up(n_rows * offsets.exponent_stride_bytes, kPlaneAlignmentBytes);
    offsets.end_bytes = offsets.tail_bytes;
    return offsets;
}

std::uint64_t kv_rows_bytes(KvFormat format, std::uint32_t rows, std::uint32_t head_dim,
                            std::uint32_t rope_dim) {
    if (format == KvFormat::packed) return kv_plane_offsets(rows, head_dim, rope_dim).end_bytes;
    return align_up(std::uint64_t{rows} * head_dim * sizeof(float), kPlaneAlignmentBytes);
}

std::uint64_t indexer_rows_bytes(KvFormat format, std::uint32_t rows, std::uint32_t dim) {
    if (format == KvFormat::packed) return indexer_plane_offsets(rows, dim).end_bytes;
    return align_up(std::uint64_t{rows} * dim * sizeof(float), kPlaneAlignmentBytes);
}

}  // namespace plimsoll::kernels
