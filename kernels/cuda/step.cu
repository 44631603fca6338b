#include <algorithm>

#include "kernels/cuda/intrinsics.cuh"
#include "kernels/cuda/ops.hpp"

// What stands between a step's logits and the next step: the largest logit, position and token.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
/// Logits a block looks at: with 129,280 of them 64 blocks of 8 loads a thread, all under way at
/// once. It sits in the decode step's graph, where only latency counts.
constexpr std::uint32_t kLogitsOfBlock = 2048;

/// A row's state in Counter::argmax: zeros between launches.
struct ArgmaxState {
    unsigned long long best;
    std::uint32_t n_arrived;
    std::uint32_t padding;
};
constexpr std::uint32_t kRowsMax = sizeof(StepState::counters[0]) / (sizeof(ArgmaxState));

/// A logit and its index as one integer: the larger logit is larger, then the lower index.
__device__ __forceinline__ unsigned long long ordered_key(float logit, std::uint32_t index) {
    const std::uint32_t bits = __float_as_uint(logit + 0.0f);  // one zero
    const std::uint32_t ordered = bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
    return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - index);
}
__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
}

/// Blocks of a row meet in a maximum of integers, whose result no order changes; the last to arrive
/// writes it and leaves zeros.
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const ArgmaxParams params, ArgmaxState* states) {
    __shared__ unsigned long long of_warp[kThreads / kWarp];
    wait_for_previous_kernel();
    allow_next_kernel();
    const float* logits = params.logits + std::uint64_t{blockIdx.y} * params.vocab;
    unsigned long long best = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kLogitsOfBlock / kThreads; ++i) {
        const std::uint32_t index = blockIdx.x * kLogitsOfBlock + i * kThreads + threadIdx.x;
        if (index < params.vocab) best = larger(best, ordered_key(logits[index], index));
    }
    for (int offset = 16; offset > 0; offset /= 2)
        best = larger(best, __shfl_xor_sync(kAllLanes, best, offset));
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (const unsigned long long candidate : of_warp) best = larger(best, candidate);
    ArgmaxState& state = states[blockIdx.y];
    atomicMax(&state.best, best);
    if (add_release(&state.n_arrived, 1) != gridDim.x - 1) return;
    best = atomicExch(&state.best, 0ull);
    state.n_arrived = 0;
    params.best[blockIdx.y] =
        static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(best));
}

__global__ void set_step_kernel(StepState* state, std::uint64_t position, std::int32_t token) {
    wait_for_previous_kernel();
    allow_next_kernel();
    state->position = position;
    state->token = token;
}

__global__ void advance_step_kernel(StepState* state, const std::int32_t* next) {
    wait_for_previous_kernel();
    allow_next_kernel();
    state->position += 1;
    state->token = *next;
}

}  // namespace

void argmax(const ArgmaxParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.vocab > 0, "no logits to choose from");
    static_assert(alignof(StepState) >= alignof(ArgmaxState));
    auto* states = reinterpret_cast<ArgmaxState*>(
        launch.state->counters[static_cast<std::uint32_t>(Counter::argmax)]);
    for (std::uint32_t row = 0; row < params.n_rows; row += kRowsMax) {
        const std::uint32_t n_rows = std::min(kRowsMax, params.n_rows - row);
        const ArgmaxParams part{params.logits + std::uint64_t{row} * params.vocab,
                                params.best + row, n_rows, params.vocab};
        launch_kernel(argmax_kernel,
                      {.grid = {(params.vocab + kLogitsOfBlock - 1) / kLogitsOfBlock, n_rows, 1},
                       .block = {kThreads, 1, 1}},
                      launch, part, states);
    }
}

void set_step(std::uint64_t position, std::int32_t token, const Launch& launch) {
    launch_kernel(set_step_kernel, {.grid = {1, 1, 1}, .block = {1, 1, 1}}, launch, launch.state,
                  position, token);
}

void advance_step(const std::int32_t* next, const Launch& launch) {
    launch_kernel(advance_step_kernel, {.grid = {1, 1, 1}, .block = {1, 1, 1}}, launch,
                  launch.state, next);
}

}  // namespace plimsoll::kernels::cuda
