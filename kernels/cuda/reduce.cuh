#pragma once

// Sums over a block and four values at a time: what norms and hyper-connections share.

#include "kernels/cuda/intrinsics.cuh"

namespace plimsoll::kernels::cuda {

/// Sum over the block in an order that depends on its size alone, the same for every thread.
/// `partials` [blockDim.x / 32] shared, free to be used again after the block's next barrier.
__device__ __forceinline__ float block_total(float x, float* partials) {
    x = warp_sum(x);
    if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = x;
    __syncthreads();
    float sum = 0.0f;
    for (std::uint32_t warp = 0; warp < blockDim.x / kWarp; ++warp) sum += partials[warp];
    return sum;
}

__device__ __forceinline__ float inverse_rms(float sum_of_squares, std::uint32_t n, float epsilon) {
    return 1.0f / sqrtf(sum_of_squares / static_cast<float>(n) + epsilon);
}

__device__ __forceinline__ float squares_of(float4 v) {
    return v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
}
__device__ __forceinline__ float4 times(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
/// a * x + b.
__device__ __forceinline__ float4 multiply_add(float a, float4 x, float4 b) {
    return make_float4(a * x.x + b.x, a * x.y + b.y, a * x.z + b.z, a * x.w + b.w);
}

/// float16 as operands of tensor cores: clamped to the largest finite value.
__device__ __forceinline__ float finite_half(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}
__device__ __forceinline__ void store_halves(__half* to, float4 v) {
    const __half2 low = __floats2half2_rn(finite_half(v.x), finite_half(v.y));
    const __half2 high = __floats2half2_rn(finite_half(v.z), finite_half(v.w));
    uint2 bits;
    memcpy(&bits.x, &low, sizeof(low));
    memcpy(&bits.y, &high, sizeof(high));
    *reinterpret_cast<uint2*>(to) = bits;
}

}  // namespace plimsoll::kernels::cuda
