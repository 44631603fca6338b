#include "kernels/cuda/intrinsics.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::uint32_t kExpertsMax = 1024;
constexpr float kWeightSumMin = 0x1p-14f;

/// sqrt(log(1 + e^x)) as on the CPU, tails and all: a choice may hang on the last bits.
__device__ __forceinline__ float affinity(float logit) {
    float softplus = logit;
    if (logit < -20.0f)
        softplus = expf(logit);
    else if (logit <= 20.0f)
        softplus = log1pf(expf(logit));
    return sqrtf(softplus);
}

/// The better of two candidates: the larger score, the lower id among equals; kExpertsMax is none.
struct Candidate {
    float score;
    std::uint32_t expert;
};
__device__ __forceinline__ Candidate better(Candidate a, Candidate b) {
    if (a.expert == kExpertsMax) return b;
    if (b.expert == kExpertsMax) return a;
    const bool b_wins = b.score > a.score || (b.score == a.score && b.expert < a.expert);
    return b_wins ? b : a;
}

/// The warp's k best experts, slot i in lane i. Each pass takes one: k passes over the lanes' own
/// scores cost less than a sort.
template <std::uint32_t kPerLane>
__device__ __forceinline__ std::uint32_t choose(const RouterParams& p, const float* logits) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    float scores[kPerLane];
    std::uint32_t left = 0;  // bit i: expert lane + 32 i exists and is not taken
#pragma unroll
    for (std::uint32_t i = 0; i < kPerLane; ++i) {
        const std::uint32_t expert = lane + i * kWarp;
        scores[i] = 0.0f;
        if (expert >= p.n_experts) continue;
        scores[i] = affinity(logits[expert]) + (p.bias != nullptr ? p.bias[expert] : 0.0f);
        left |= 1u << i;
    }
    std::uint32_t chosen = 0;
    for (std::uint32_t slot = 0; slot < p.n_experts_used; ++slot) {
        Candidate best{0.0f, kExpertsMax};
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; ++i)
            if ((left >> i & 1u) != 0) best = better(best, {scores[i], lane + i * kWarp});
        for (std::uint32_t mask = 1; mask < kWarp; mask *= 2)
            best = better(best, {__shfl_xor_sync(kAllLanes, best.score, static_cast<int>(mask)),
                                 __shfl_xor_sync(kAllLanes, best.expert, static_cast<int>(mask))});
        if (best.expert % kWarp == lane) left &= ~(1u << best.expert / kWarp);
        if (lane == slot) chosen = best.expert;
    }
    return chosen;
}

/// A warp a token: 1 KB of logits, and the latency of k maxima over the lanes.
template <std::uint32_t kPerLane>
__global__ void __launch_bounds__(kThreads)
    route_kernel(const RouterParams p, const StepState* state) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t lane = threadIdx.x % kWarp, k = p.n_experts_used;
    const std::uint64_t token =
        std::uint64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
    if (token >= p.n_tokens) return;
    const float* logits = p.logits + token * p.n_experts;
    std::uint32_t expert = 0;
    if (p.table != nullptr) {
        const std::int32_t id = p.token_ids != nullptr ? p.token_ids[token] : state->token;
        if (lane < k)
            expert = static_cast<std::uint32_t>(p.table[static_cast<std::uint64_t>(id) * k + lane]);
        if (expert >= p.n_experts) __trap();  // a table that names no such expert
    } else {
        expert = choose<kPerLane>(p, logits);
    }
    const float weight = lane < k ? affinity(logits[expert]) : 0.0f;
    float sum = 0.0f;
    for (std::uint32_t slot = 0; slot < k; ++slot)
        sum += __shfl_sync(kAllLanes, weight, static_cast<int>(slot));
    if (lane >= k) return;
    p.expert_ids[token * k + lane] = static_cast<std::int32_t>(expert);
    p.expert_weights[token * k + lane] = p.weights_scale * weight / fmaxf(sum, kWeightSumMin);
}

}  // namespace

void route(const RouterParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.n_experts <= kExpertsMax, "more experts than supported");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used <= params.n_experts,
                          "more experts used than there are");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used <= kExpertsUsedMax,
                          "more experts used than supported");
    constexpr std::uint32_t kTokens = kThreads / kWarp;
    const Shape shape{.grid = (params.n_tokens + kTokens - 1) / kTokens, .block = kThreads};
    if (params.n_experts <= 8 * kWarp)
        launch_kernel(route_kernel<8>, shape, launch, params, launch.state);
    else
        launch_kernel(route_kernel<kExpertsMax / kWarp>, shape, launch, params, launch.state);
}

}  // namespace plimsoll::kernels::cuda
