#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"

/// Kernels that do nothing but use kernels/cuda/intrinsics.cuh, so that its layouts and meetings
/// are tested where they run: on a GPU, and in the emulation that stands for one.
namespace plimsoll::kernels::test {

/// product[16][8] += a[16][16] . b[16][8], float16 in row-major order, by one warp: a by
/// load_matrix, b by load_matrix_transposed.
void multiply_tile(const std::uint16_t* a, const std::uint16_t* b, float* product,
                   const cuda::Launch& launch);

/// sums[block] = sum of 256 values of a block, through asynchronous copies, shuffles and barriers.
void sum_blocks(const float* values, float* sums, std::uint32_t n_blocks,
                const cuda::Launch& launch);

/// Each of `n_blocks` blocks writes its number, meets the others, and sums what all wrote; twice.
/// totals[2][n_blocks].
void meet_twice(std::uint32_t* numbers, std::uint32_t* totals, std::uint32_t n_blocks,
                const cuda::Launch& launch);

/// Results of warp operations of 48 threads: [n][48], see the test for what each is.
inline constexpr std::uint32_t kWarpResults = 12;
inline constexpr std::uint32_t kWarpThreads = 48;
void warp_operations(std::uint32_t* results, const cuda::Launch& launch);

}  // namespace plimsoll::kernels::test
