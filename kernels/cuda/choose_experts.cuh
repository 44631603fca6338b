#pragma once

// The router inside a block: what kernels::cpu::route does for one token.

#include "kernels/cuda/intrinsics.cuh"
#include "kernels/types.hpp"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kExpertsMax = 1024;
inline constexpr float kWeightSumMin = 6.103515625e-5f;  // 2^-14

/// In shared memory.
struct Routing {
    float affinities[kExpertsMax];
    float scores[kExpertsMax];
    std::int32_t ids[kExpertsUsedMax];
    float weights[kExpertsUsedMax];
};

struct RouterInput {
    const float* logits;            // [n_experts]
    const float* bias;              // [n_experts] or null
    const std::int32_t* table_row;  // [n_experts_used] the token's experts, or null
    std::uint32_t n_experts;
    std::uint32_t n_experts_used;
    float weights_scale;
};

/// sqrt(log(1 + e^x)), with the tails where float32 leaves only one of the terms.
__device__ __forceinline__ float router_affinity(float logit) {
    float softplus = logit;
    if (logit < -20.0f)
        softplus = expf(logit);
    else if (logit <= 20.0f)
        softplus = log1pf(expf(logit));
    return sqrtf(softplus);
}

/// By the whole block, which meets afterwards and then lets one warp choose.
__device__ inline void score_experts(const RouterInput& input, Routing& routing) {
    for (std::uint32_t e = threadIdx.x; e < input.n_experts; e += blockDim.x) {
        const float affinity = router_affinity(input.logits[e]);
        routing.affinities[e] = affinity;
        // Adding zero makes the two zeros one, as in a comparison of floats.
        routing.scores[e] = affinity + (input.bias != nullptr ? input.bias[e] : 0.0f) + 0.0f;
    }
}

/// An integer of the same order as the float.
__device__ __forceinline__ std::uint32_t ordered_bits(float x) {
    const std::uint32_t bits = __float_as_uint(x);
    return bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
}

/// The k largest scores in descending order, the lower id first among equals, by one warp. Lane l
/// holds the scores of experts l, l + 32, ..; 0 stands for one that is taken.
template <std::uint32_t kOfLane>
__device__ void choose_largest(const RouterInput& input, Routing& routing) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    std::uint32_t keys[kOfLane];
#pragma unroll
    for (std::uint32_t i = 0; i < kOfLane; ++i) {
        const std::uint32_t e = i * kWarp + lane;
        keys[i] = e < input.n_experts ? ordered_bits(routing.scores[e]) : 0u;
    }
    for (std::uint32_t slot = 0; slot < input.n_experts_used; ++slot) {
        std::uint32_t best = 0, best_at = 0;
#pragma unroll
        for (std::uint32_t i = 0; i < kOfLane; ++i)
            if (keys[i] > best) best = keys[i], best_at = i;
        const std::uint32_t largest = __reduce_max_sync(kAllLanes, best);
        const std::uint32_t expert =
            __reduce_min_sync(kAllLanes, best == largest ? best_at * kWarp + lane : 0xffffffffu);
#pragma unroll
        for (std::uint32_t i = 0; i < kOfLane; ++i)
            if (expert == i * kWarp + lane) keys[i] = 0;
        if (lane == 0) routing.ids[slot] = static_cast<std::int32_t>(expert);
    }
}

/// By one warp, after score_experts and a meeting of the block: fills ids and weights.
__device__ inline void choose_experts(const RouterInput& input, Routing& routing) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t k = input.n_experts_used;
    if (input.table_row != nullptr) {
        if (lane < k) routing.ids[lane] = input.table_row[lane];
    } else if (input.n_experts <= 8 * kWarp) {
        choose_largest<8>(input, routing);
    } else {
        choose_largest<kExpertsMax / kWarp>(input, routing);
    }
    __syncwarp();
    float affinity = 0.0f;
    if (lane < k) {
        const auto expert = static_cast<std::uint32_t>(routing.ids[lane]);
        if (expert >= input.n_experts) __trap();  // a table that names no such expert
        affinity = routing.affinities[expert];
    }
    float sum = 0.0f;
    for (std::uint32_t slot = 0; slot < k; ++slot)
        sum += __shfl_sync(kAllLanes, affinity, static_cast<int>(slot));
    if (lane < k)
        routing.weights[lane] = input.weights_scale * affinity / fmaxf(sum, kWeightSumMin);
}

}  // namespace plimsoll::kernels::cuda
