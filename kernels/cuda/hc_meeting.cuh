#pragma once

// How the blocks of an hc_step, and one step and the next, hand each other what they have.

#include "kernels/cuda/hyper_connection.cuh"

namespace plimsoll::kernels::cuda::hc {

inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kWarps = kThreads / kWarp;
inline constexpr std::uint32_t kBlocksMax = 64;  // that own columns
inline constexpr std::uint32_t kTogether =
    3;  // values whose partial sums a warp asks for at a time

__host__ __device__ constexpr std::uint32_t gram_values(std::uint32_t n_streams) {
    return n_streams * (n_streams + 1) / 2;
}
__host__ __device__ constexpr std::uint32_t fn_rows(std::uint32_t n_streams) {
    return n_streams * (n_streams + 2);
}
__host__ __device__ constexpr std::uint32_t coefficient_count(std::uint32_t n_streams) {
    return n_streams * (n_streams + 1);
}
inline constexpr std::uint32_t kValuesMax = fn_rows(kStreamsMax) + gram_values(kStreamsMax);
inline constexpr std::uint32_t kCoefficientsMax = coefficient_count(kStreamsMax);

/// Tagged words between the blocks and between steps, all zero before the first: of each value,
/// and of the second meeting's, kBlocksMax partial sums; the number of the last launch as a tag;
/// the logits of the next merge's coefficients, tagged likewise.
struct Meeting {
    std::uint64_t* words;
    std::uint32_t n_streams;

    __device__ __forceinline__ std::uint64_t* partials(std::uint32_t value) const {
        return words + value * kBlocksMax;
    }
    __device__ __forceinline__ std::uint32_t squares_value() const {
        return fn_rows(n_streams) + gram_values(n_streams);
    }
    __device__ __forceinline__ std::uint64_t* last_launch() const {
        return partials(squares_value() + 1);
    }
    __device__ __forceinline__ std::uint64_t* logits() const { return last_launch() + 1; }
};

__device__ __forceinline__ float await_tagged(const std::uint64_t* from, Tagged word,
                                              std::uint32_t tag) {
    while (word.tag != tag) {
        wait_a_little();
        word = load_tagged(from);
    }
    return word.value;
}

/// Sums over all blocks of the values that `value_of` names for i < n_wanted, into `values` by
/// their names.
template <class ValueOf>
__device__ __forceinline__ void await_sums(const Meeting& meeting, std::uint32_t tag,
                                           std::uint32_t n_blocks, std::uint32_t n_wanted,
                                           ValueOf value_of, float* values) {
    constexpr std::uint32_t kAsked = kBlocksMax / kWarp;
    const std::uint32_t lane = threadIdx.x % kWarp;
    for (std::uint32_t at = threadIdx.x / kWarp; at < n_wanted; at += kTogether * kWarps) {
        Tagged words[kTogether][kAsked];
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            const bool is_wanted = at + i * kWarps < n_wanted;
            const std::uint64_t* from = meeting.partials(is_wanted ? value_of(at + i * kWarps) : 0);
#pragma unroll
            for (std::uint32_t k = 0; k < kAsked; ++k)
                words[i][k] = is_wanted && lane + k * kWarp < n_blocks
                                  ? load_tagged(from + lane + k * kWarp)
                                  : Tagged{0.0f, tag};
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i) {
            if (at + i * kWarps >= n_wanted) break;
            const std::uint32_t value = value_of(at + i * kWarps);
            float sum = 0.0f;
#pragma unroll
            for (std::uint32_t k = 0; k < kAsked; ++k)
                sum += await_tagged(meeting.partials(value) + lane + k * kWarp, words[i][k], tag);
            sum = warp_sum(sum);
            if (lane == 0) values[value] = sum;
        }
    }
    __syncthreads();
}

/// What turns logits into coefficients.
struct Balance {
    std::uint32_t n_streams;
    std::uint32_t iterations;
    float epsilon;
};

/// The next merge's coefficients from their logits, by one warp, in shared memory: post, then comb.
template <std::uint32_t kStreams>
__device__ __forceinline__ void finish_coefficients(Balance balance, float* logits, float* out) {
    const std::uint32_t n = kStreams == 4 ? 4 : balance.n_streams, lane = threadIdx.x % kWarp;
    if (lane < n) out[lane] = 2.0f * sigmoid(logits[lane]);
    sinkhorn<kStreams>(logits + n, n, balance.iterations, balance.epsilon, out + n);
    __syncwarp();
}

/// Fetches what the step before left; true where all of it carries the same tag, which `tag` gets.
__device__ __forceinline__ bool load_logits(const Meeting& meeting, float* logits,
                                            std::uint32_t& tag) {
    const std::uint32_t count = coefficient_count(meeting.n_streams);
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint64_t* words = meeting.logits();
    tag = __shfl_sync(kAllLanes, load_tagged(words).tag, 0);
    bool agree = true;
    for (std::uint32_t i = lane; i < count; i += kWarp) {
        const Tagged word = load_tagged(words + i);
        logits[i] = word.value;
        agree = agree && word.tag == tag;
    }
    __syncwarp();
    return __all_sync(kAllLanes, agree);
}

/// What a warp of each block brings to the merge. `begin` may run before the wait: where the step
/// before has finished by then, as it nearly always has, its logits are there and nothing is left
/// to be done behind the wait.
template <std::uint32_t kStreams>
struct MergeCoefficients {
    Balance balance;
    float* logits;        // shared, [kCoefficientsMax]
    float* coefficients;  // shared, what the merge reads
    std::uint32_t tag = 0;
    bool agree = false;

    __device__ __forceinline__ void begin(const Meeting& meeting) {
        agree = load_logits(meeting, logits, tag);
        finish_coefficients<kStreams>(balance, logits, coefficients);
    }
    __device__ __forceinline__ void end(const Meeting& meeting, std::uint32_t last_launch) {
        if (!agree || tag != last_launch) begin(meeting);
    }
};

}  // namespace plimsoll::kernels::cuda::hc
