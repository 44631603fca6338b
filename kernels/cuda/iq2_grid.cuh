#pragma once

#include "kernels/cuda/intrinsics.cuh"
#include "kernels/iq2_tables.hpp"

namespace plimsoll::kernels::cuda {

/// kIq2XxsGrid where device code can index it.
struct Iq2Grid {
    std::uint64_t rows[256];
};
constexpr Iq2Grid make_iq2_grid() {
    Iq2Grid grid{};
    for (std::uint32_t row = 0; row < 256; ++row) grid.rows[row] = kIq2XxsGrid[row];
    return grid;
}
static __device__ const Iq2Grid kIq2Grid = make_iq2_grid();

/// Signs of 8 elements from their 7 stored bits: bit 7 makes the number of negative ones even.
__device__ __forceinline__ std::uint32_t iq2_signs(std::uint32_t seven_bits) {
    return seven_bits | ((static_cast<std::uint32_t>(__popc(seven_bits)) & 1u) << 7);
}

}  // namespace plimsoll::kernels::cuda
