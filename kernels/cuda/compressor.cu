#include <cmath>

#include "kernels/cuda/compressor.cuh"
#include "kernels/cuda/ops.hpp"

// Compressors of a chunk in two launches: rows of finished windows, which read the state, then the
// state. A chunk of 2,048 tokens at width 1,024 reads 16 MB of products; ratio 4 makes 512 rows of
// 8 candidates, a block each, ratio 128 makes 16 rows whose threads load 8 tokens at a time.

namespace plimsoll::kernels::cuda {

CompressorArgs compressor_args(const CompressorParams& params) {
    CompressorArgs args{};
    if (params.g_kv == nullptr) return args;
    const bool for_attention = params.kv_rows.base != nullptr;
    PLIMSOLL_KERNEL_CHECK(for_attention != (params.indexer_rows.base != nullptr),
                          "one region to write to");
    PLIMSOLL_KERNEL_CHECK(params.dim <= kHeadDimMax, "row is wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.dim % 2 == 0, "rotated pairs are neighbours");
    PLIMSOLL_KERNEL_CHECK(params.ratio > 0, "a window has tokens");
    PLIMSOLL_KERNEL_CHECK(params.ratio <= kCompressorRatioMax, "window is longer than supported");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim <= params.dim, "rope dims are part of the row");
    PLIMSOLL_KERNEL_CHECK(info_of(params.ape.type).block_elements == 1,
                          "position biases are not quantised");
    PLIMSOLL_KERNEL_CHECK(for_attention || params.dim % kFp4Block == 0,
                          "indexer rows are whole blocks");
    args.g_kv = params.g_kv;
    args.g_sc = params.g_sc;
    args.ape = params.ape.data;
    args.ape_type = params.ape.type;
    args.rounding = params.rounding;
    args.norm_weight = params.norm_weight;
    args.width = compressor_lanes(params.ratio) * params.dim;
    args.state_kv = static_cast<float*>(params.state);
    args.state_score =
        args.state_kv + std::uint64_t{compressor_state_rows(params.ratio)} * args.width;
    args.kv_rows = kv_region(params.kv_rows);
    args.indexer_rows = indexer_region(params.indexer_rows);
    args.angles = rope_angles(params.rope);
    args.n_tokens = params.n_tokens;
    args.ratio = params.ratio;
    args.dim = params.dim;
    args.rms_epsilon = params.rms_epsilon;
    args.hadamard_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(params.dim)));
    return args;
}

namespace {

constexpr std::uint32_t kStateThreads = 256;

/// Block i makes the row of the i-th window that the chunk touches, where the chunk finishes it.
__global__ void __launch_bounds__(kCompressorThreads, 1)
    rows_kernel(const CompressorArgs args, const StepState* state) {
    __shared__ RowScratch scratch;
    wait_for_previous_kernel();
    allow_next_kernel();
    const ChunkSpan span = chunk_span(args, state->position);
    const std::uint64_t window = span.first_window + blockIdx.x;
    if (window >= span.end_window) return;
    const float norm_weight = threadIdx.x < args.dim ? args.norm_weight[threadIdx.x] : 0.0f;
    with_ape(args,
             [&](const auto* ape) { emit_row(args, ape, scratch, span, window, norm_weight); });
}

/// Grid: columns, then tokens of a window.
__global__ void __launch_bounds__(kStateThreads)
    state_kernel(const CompressorArgs args, const StepState* state) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t column = blockIdx.x * kStateThreads + threadIdx.x;
    if (column >= args.width) return;
    const ChunkSpan span = chunk_span(args, state->position);
    with_ape(args, [&](const auto* ape) { update_state(args, ape, span, blockIdx.y, column); });
}

/// Values 0 and scores -1e30 over [2, n].
__global__ void __launch_bounds__(kStateThreads) reset_kernel(float* state, std::uint64_t n) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint64_t i = std::uint64_t{blockIdx.x} * kStateThreads + threadIdx.x;
    if (i < 2 * n) state[i] = i < n ? 0.0f : -1e30f;
}

std::uint32_t ceil_div(std::uint32_t value, std::uint32_t divisor) {
    return (value + divisor - 1) / divisor;
}

}  // namespace

void compress(const CompressorParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.g_kv != nullptr, "there is something to compress");
    const CompressorArgs args = compressor_args(params);
    if (params.n_tokens == 0) return;
    // The position may change under a captured launch: as many windows as any position can finish.
    const std::uint32_t threads = ceil_div(args.dim, kWarp) * kWarp;
    launch_kernel(rows_kernel, Shape{dim3(params.n_tokens / params.ratio + 1), dim3(threads)},
                  launch, args, launch.state);
    launch_kernel(
        state_kernel,
        Shape{dim3(ceil_div(args.width, kStateThreads), params.ratio), dim3(kStateThreads)}, launch,
        args, launch.state);
}

void compressor_reset(void* state, std::uint32_t ratio, std::uint32_t width, const Launch& launch) {
    const std::uint32_t n = compressor_state_rows(ratio) * width;
    launch_kernel(reset_kernel, Shape{dim3(ceil_div(2 * n, kStateThreads)), dim3(kStateThreads)},
                  launch, static_cast<float*>(state), std::uint64_t{n});
}

}  // namespace plimsoll::kernels::cuda
