#pragma once

#include "kernels/cuda/attention.cuh"

// Shapes of the attention of one token (decode_attention.cu), and the combination of its splits.

namespace plimsoll::kernels::cuda::decode {

inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kWarps = kThreads / kWarp;
inline constexpr std::uint32_t kHeads = 16;
inline constexpr std::uint32_t kRows = 32;
/// Lanes of a warp, which weigh one split each; 4 x 32 blocks nearly fill 132 multiprocessors.
inline constexpr std::uint32_t kSplitsMax = 32;
inline constexpr std::uint32_t kLogitStride =
    kRows + 8;  // float32: 8 rows fall into different banks
inline constexpr std::uint32_t kWeightHalves = kRows + 8;  // float16

__host__ __device__ constexpr std::uint32_t ceil_div(std::uint32_t value, std::uint32_t divisor) {
    return (value + divisor - 1) / divisor;
}

constexpr std::uint32_t split_count(std::uint32_t rows_max) {
    const std::uint32_t tiles = ceil_div(rows_max, kRows);
    return tiles < 1 ? 1 : (tiles < kSplitsMax ? tiles : kSplitsMax);
}

struct DecodeArgs {
    AttentionRows rows;
    const float* q;      // [n_heads, head_dim], not normed
    const float* sinks;  // [n_heads]
    float* output;       // [n_heads, head_dim]
    float2* stats;       // [n_splits, padded heads]: largest logit and sum of weights
    float* sums;         // [n_splits, padded heads, head_dim]
    RopeAngles angles;
    StepState* state;
    std::uint32_t n_heads;
    std::uint32_t n_splits;
    std::uint32_t selected_max;
    float rms_epsilon;
    float logit_scale;  // log2(e) / sqrt(head_dim): softmax runs on powers of two
    float head_dim_inverse;
};

template <int kHeadDim>
struct DecodeShared {
    static constexpr std::uint32_t kRowHalves = kTileRowHalves<kHeadDim>;
    alignas(16) __half q[kHeads * kRowHalves];
    alignas(16) __half tile[kRows * kRowHalves];
    alignas(16) __half weights[kHeads * kWeightHalves];
    float logits[kWarps][kHeads * kLogitStride];  // each warp's share of head_dim
    float rescale[kHeads];
    RowPlace places[2][kRows];  // of this tile and the next
    float2 rotation[kRopeDimMax / 2];
    float split_weights[kHeads][kSplitsMax];
};

/// Each split's weight in each head of the block's group, and the sink: two heads a warp, a lane a
/// split.
template <int kHeadDim>
__device__ __forceinline__ void weigh_splits(DecodeShared<kHeadDim>& shared, const DecodeArgs& args,
                                             std::uint32_t n_used) {
    const std::uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::uint32_t in_group = threadIdx.x / kWarp * 2 + i;
        const std::uint32_t head = blockIdx.y * kHeads + in_group;
        const float sink = head < args.n_heads ? args.sinks[head] * kLog2E : 0.0f;
        float2 split = make_float2(-INFINITY, 0.0f);
        if (lane < n_used)
            split = __ldcg(args.stats + std::uint64_t{lane} * gridDim.y * kHeads + head);
        const float largest = fmaxf(sink, warp_max(split.x));
        const float weight = exp2f(split.x - largest);
        const float sum = warp_sum(weight * split.y) + exp2f(sink - largest);
        shared.split_weights[in_group][lane] = weight / sum;
    }
}

/// Splits that each of the two lanes of four columns adds up: every other one.
inline constexpr std::uint32_t kSplitsOfLane = kSplitsMax / 2;

/// The block's share of its group's outputs, rotated back: four columns of a head to two lanes. All
/// of a lane's sums are on their way at once, the first while splits are weighed.
template <int kHeadDim>
__device__ __forceinline__ void combine_splits(DecodeShared<kHeadDim>& shared,
                                               const DecodeArgs& args, std::uint32_t n_used) {
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t parts = head_dim / 4, lane = threadIdx.x % 2;
    const std::uint32_t rope_first = head_dim - 2 * args.angles.n_pairs;
    const std::uint64_t stride = std::uint64_t{gridDim.y} * kHeads * head_dim;
    const std::uint32_t n_heads = min(kHeads, args.n_heads - blockIdx.y * kHeads);
    const std::uint32_t share = ceil_div(kHeads * parts, gridDim.x);
    const std::uint32_t end = min((blockIdx.x + 1) * share, n_heads * parts);
    const float* group = args.sums + std::uint64_t{blockIdx.y} * kHeads * head_dim;
    for (std::uint32_t first = 0; first < share; first += kThreads / 2) {
        const std::uint32_t i = blockIdx.x * share + first + threadIdx.x / 2;
        float4 sums[kSplitsOfLane];
#pragma unroll
        for (std::uint32_t k = 0; k < kSplitsOfLane; ++k)
            sums[k] = i < end && 2 * k + lane < n_used
                          ? __ldcg(reinterpret_cast<const float4*>(group + i * 4 +
                                                                   (2 * k + lane) * stride))
                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (first == 0) {
            weigh_splits(shared, args, n_used);
            __syncthreads();
        }
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float* weights = shared.split_weights[min(i / parts, kHeads - 1)];
#pragma unroll
        for (std::uint32_t k = 0; k < kSplitsOfLane; ++k) {
            // Splits that are not weigh nothing.
            const float weight = weights[2 * k + lane];
            sum = make_float4(sum.x + weight * sums[k].x, sum.y + weight * sums[k].y,
                              sum.z + weight * sums[k].z, sum.w + weight * sums[k].w);
        }
        const float2 low = make_float2(sum.x + __shfl_xor_sync(kAllLanes, sum.x, 1),
                                       sum.y + __shfl_xor_sync(kAllLanes, sum.y, 1));
        const float2 high = make_float2(sum.z + __shfl_xor_sync(kAllLanes, sum.z, 1),
                                        sum.w + __shfl_xor_sync(kAllLanes, sum.w, 1));
        if (i >= end) continue;
        const std::uint32_t column = i % parts * 4 + 2 * lane;
        float2 own = lane == 0 ? low : high;
        if (column >= rope_first)
            own = rotate_back(own, shared.rotation[(column - rope_first) / 2]);
        const std::uint64_t head = blockIdx.y * kHeads + i / parts;
        *reinterpret_cast<float2*>(args.output + head * head_dim + column) = own;
    }
}

}  // namespace plimsoll::kernels::cuda::decode
