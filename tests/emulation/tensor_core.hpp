#pragma once

#include <cstdint>

/// Operations of a whole warp that kernels/cuda/intrinsics.cuh describes, with its layouts.
namespace plimsoll::emulation {

void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void load_matrix(std::uint32_t (&r)[4], const void* row_shared);
void load_matrix_transposed(std::uint32_t (&r)[4], const void* row_shared);
float warp_sum(float x);

}  // namespace plimsoll::emulation
