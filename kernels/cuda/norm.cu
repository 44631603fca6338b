#include "kernels/cuda/intrinsics.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/reduce.cuh"

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
/// Longer rows are shared by a block, so that few rows of 4,096 still use many threads.
constexpr std::uint32_t kWarpRowMax = 1024;

struct NormedRow {
    const float* input;   // [dim]
    const float* weight;  // [dim], or null
    float* output;
    __half* output_f16;  // [dim], or null
};

__device__ __forceinline__ float squares(const float* row, std::uint32_t dim, std::uint32_t first,
                                         std::uint32_t step) {
    float sum = 0.0f;
    for (std::uint32_t i = 4 * first; i < dim; i += 4 * step)
        sum += squares_of(*reinterpret_cast<const float4*>(row + i));
    return sum;
}

/// The row is read a second time: it is a few KB that this multiprocessor's L1 still has.
__device__ __forceinline__ void scale_row(const NormedRow& row, std::uint32_t dim, float scale,
                                          std::uint32_t first, std::uint32_t step) {
    for (std::uint32_t i = 4 * first; i < dim; i += 4 * step) {
        float4 v = *reinterpret_cast<const float4*>(row.input + i);
        v = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
        if (row.weight != nullptr) v = times(v, *reinterpret_cast<const float4*>(row.weight + i));
        *reinterpret_cast<float4*>(row.output + i) = v;
        if (row.output_f16 != nullptr) store_halves(row.output_f16 + i, v);
    }
}

__device__ __forceinline__ NormedRow row_of(const RmsNormParams& params, __half* output_f16,
                                            std::uint64_t at) {
    return {params.input + at * params.dim, params.weight, params.output + at * params.dim,
            output_f16 != nullptr ? output_f16 + at * params.dim : nullptr};
}

/// Bound by memory: a read and a write of every row (and half a write in float16).
__global__ void __launch_bounds__(kThreads)
    rms_norm_by_warp(const RmsNormParams params, __half* output_f16) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint64_t at = std::uint64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
    if (at >= params.n_rows) return;
    const NormedRow row = row_of(params, output_f16, at);
    const float sum = warp_sum(squares(row.input, params.dim, lane, kWarp));
    scale_row(row, params.dim, inverse_rms(sum, params.dim, params.epsilon), lane, kWarp);
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_by_block(const RmsNormParams params, __half* output_f16) {
    __shared__ float partials[kThreads / kWarp];
    wait_for_previous_kernel();
    allow_next_kernel();
    const NormedRow row = row_of(params, output_f16, blockIdx.x);
    const float sum = block_total(squares(row.input, params.dim, threadIdx.x, kThreads), partials);
    scale_row(row, params.dim, inverse_rms(sum, params.dim, params.epsilon), threadIdx.x, kThreads);
}

}  // namespace

void rms_norm(const RmsNormParams& params, void* output_f16, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.dim % 4 == 0, "rows are read 16 bytes at a time");
    PLIMSOLL_KERNEL_CHECK(params.n_rows < (std::uint64_t{1} << 31), "more rows than a grid has");
    auto* halves = static_cast<__half*>(output_f16);
    const auto rows = static_cast<std::uint32_t>(params.n_rows);
    if (params.dim <= kWarpRowMax)
        launch_kernel(rms_norm_by_warp, {.grid = (rows + 7) / 8, .block = kThreads}, launch, params,
                      halves);
    else
        launch_kernel(rms_norm_by_block, {.grid = rows, .block = kThreads}, launch, params, halves);
}

}  // namespace plimsoll::kernels::cuda
