#pragma once

#include <cstdint>

#include "kernels/types.hpp"

/// How weights lie in device memory. The file interleaves scales and quants in blocks of 34, 66, 84
/// or 144 bytes, which no 16-byte load is aligned to; on the device the same bytes lie in planes,
/// one after the other, each row-major over [n_out, blocks of a row]:
///
///     q8_0     quants 32 B a block | scale d f16, 2 B a block
///     q2_k     quants 64 B         | scales 16 B | d, dmin f16, 4 B
///     q4_k     quants 128 B        | head 16 B: d, dmin f16, 12 B scales
///     iq2_xxs  codes 64 B          | d f16, 2 B
///     f32, f16, bf16: as in the file
///
/// Not a byte more than the file has. Quants and scales keep the file's order inside a block.
/// Routed experts: each expert's gate, up and down is a matrix with planes of its own.
namespace plimsoll::kernels::cuda {

struct PlaneSizes {
    std::uint32_t quants_bytes;  // of a block
    std::uint32_t scales_bytes;
    std::uint32_t tail_bytes;
};

[[nodiscard]] constexpr PlaneSizes plane_sizes(WeightType type) {
    switch (type) {
        case WeightType::q8_0: return {32, 2, 0};
        case WeightType::q2_k: return {64, 16, 4};
        case WeightType::q4_k: return {128, 16, 0};
        case WeightType::iq2_xxs: return {64, 2, 0};
        default: return {info_of(type).block_bytes, 0, 0};
    }
}

/// Byte offsets of the planes of a matrix of `n_blocks` blocks in all (rows times blocks of a row).
struct PlaneStarts {
    std::uint64_t scales_bytes;
    std::uint64_t tail_bytes;
};
[[nodiscard]] constexpr PlaneStarts plane_starts(WeightType type, std::uint64_t n_blocks) {
    const PlaneSizes sizes = plane_sizes(type);
    const std::uint64_t scales = n_blocks * sizes.quants_bytes;
    return {scales, scales + n_blocks * sizes.scales_bytes};
}

}  // namespace plimsoll::kernels::cuda
