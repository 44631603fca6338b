#pragma once

// IQ2_XXS for byte dots: signed weights out of two table entries and a byte permutation.

#include "kernels/cuda/intrinsics.cuh"
#include "kernels/iq2_tables.hpp"

namespace plimsoll::kernels::cuda {

/// Tables of IQ2_XXS, at the start of dynamic shared memory. Each entry is there 32 times over: a
/// lane reads its own column, so that 32 random entries are one access without bank conflicts, and
/// rows are 256 bytes apart: so an entry's offset is one byte permutation of the codes' word and
/// the lane's column. An entry of 8 magnitudes is 8 selectors of 4 bits for a byte permutation of
/// {8, 25, 43} and their negatives; signs are bit 2 of these, by 8 bits of which the highest is
/// ignored.
struct Iq2Tables {
    struct Row {
        std::uint32_t magnitudes[kWarp];
        std::uint32_t signs[kWarp];
    } rows[256];
};
inline constexpr std::uint32_t kIq2Positive = 0x002b1908;  // bytes 8, 25, 43
inline constexpr std::uint32_t kIq2Negative = 0x00d5e7f8;  // their negatives

struct Iq2Selectors {
    std::uint32_t magnitudes[256];
    std::uint32_t signs[256];
};
constexpr Iq2Selectors make_iq2_selectors() {
    Iq2Selectors selectors{};
    for (std::uint32_t row = 0; row < 256; ++row)
        for (std::uint32_t j = 0; j < 8; ++j) {
            // The upper half of a magnitude's byte counts 0, 1, 2.
            const auto count = static_cast<std::uint32_t>(kIq2XxsGrid[row] >> (8 * j + 4)) & 3u;
            selectors.magnitudes[row] |= count << (4 * j);
            const std::uint32_t sign = (iq2_xxs_signs(row & 127u) >> j) & 1u;
            selectors.signs[row] |= sign << (4 * j + 2);
        }
    return selectors;
}
static __device__ const Iq2Selectors kIq2Selectors = make_iq2_selectors();

/// A thread fills a row, from another column on than its neighbours: no bank conflicts here either.
__device__ inline void fill_iq2_tables() {
    auto* tables = reinterpret_cast<Iq2Tables*>(dynamic_shared());
    for (std::uint32_t row = threadIdx.x; row < 256; row += blockDim.x) {
        const std::uint32_t magnitude = kIq2Selectors.magnitudes[row];
        const std::uint32_t sign = kIq2Selectors.signs[row];
        auto* magnitudes = reinterpret_cast<uint4*>(tables->rows[row].magnitudes);
        auto* signs = reinterpret_cast<uint4*>(tables->rows[row].signs);
#pragma unroll
        for (std::uint32_t i = 0; i < kWarp / 4; ++i) {
            const std::uint32_t at = (threadIdx.x + i) % (kWarp / 4);
            magnitudes[at] = {magnitude, magnitude, magnitude, magnitude};
            signs[at] = {sign, sign, sign, sign};
        }
    }
}

}  // namespace plimsoll::kernels::cuda
