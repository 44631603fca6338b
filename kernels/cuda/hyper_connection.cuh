#pragma once

// What the hyper-connection kernels share: coefficients, Sinkhorn, and rows of `fn`.
//
// Templates on kStreams: 4 keeps everything in registers without a test; kStreamsMax serves any
// smaller count, with zeros where there is no stream.

#include "kernels/cuda/reduce.cuh"
#include "kernels/types.hpp"

namespace plimsoll::kernels::cuda {

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Eight consecutive weights of a row as they lie in memory.
template <WeightType kType>
struct EightWeights {
    static constexpr std::uint32_t kWords = kType == WeightType::f32 ? 2 : 1;
    uint4 words[kWords];
};

/// Weights [element, element + 8); `element` is a multiple of 8.
template <WeightType kType>
__device__ __forceinline__ EightWeights<kType> load_eight(const void* weights,
                                                          std::uint64_t element) {
    constexpr std::uint32_t kWords = EightWeights<kType>::kWords;
    EightWeights<kType> eight;
    const auto* from = static_cast<const uint4*>(weights) + element / 8 * kWords;
#pragma unroll
    for (std::uint32_t i = 0; i < kWords; ++i) eight.words[i] = __ldg(from + i);
    return eight;
}

template <WeightType kType>
__device__ __forceinline__ void to_floats(const EightWeights<kType>& eight, float (&out)[8]) {
    if constexpr (kType == WeightType::f32) {
        memcpy(out, eight.words, sizeof(out));
    } else {
        std::uint32_t pairs[4];
        memcpy(pairs, eight.words, sizeof(pairs));
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            if constexpr (kType == WeightType::bf16) {
                out[2 * i] = __uint_as_float(pairs[i] << 16);
                out[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
            } else {
                __half2 pair;
                memcpy(&pair, &pairs[i], sizeof(pair));
                const float2 values = __half22float2(pair);
                out[2 * i] = values.x;
                out[2 * i + 1] = values.y;
            }
        }
    }
}

/// Softmax of each row of an [n, n] matrix in shared memory, plus epsilon, in place; a warp
/// together.
__device__ __forceinline__ void soften_rows(float* matrix, std::uint32_t n, float epsilon) {
    constexpr std::uint32_t kOwn = kStreamsMax * kStreamsMax / kWarp;
    const std::uint32_t lane = threadIdx.x % kWarp;
    float own[kOwn] = {};
#pragma unroll
    for (std::uint32_t i = 0; i < kOwn; ++i) {
        const std::uint32_t at = lane + i * kWarp;
        if (at >= n * n) break;
        const float* row = matrix + at / n * n;
        float largest = row[0];
        for (std::uint32_t k = 1; k < n; ++k) largest = fmaxf(largest, row[k]);
        own[i] = expf(matrix[at] - largest);
    }
    __syncwarp();
#pragma unroll
    for (std::uint32_t i = 0; i < kOwn; ++i)
        if (lane + i * kWarp < n * n) matrix[lane + i * kWarp] = own[i];
    __syncwarp();
#pragma unroll
    for (std::uint32_t i = 0; i < kOwn; ++i) {
        const std::uint32_t at = lane + i * kWarp;
        if (at >= n * n) break;
        const float* row = matrix + at / n * n;
        float sum = 0.0f;
        for (std::uint32_t k = 0; k < n; ++k) sum += row[k];
        own[i] = own[i] / sum + epsilon;
    }
    __syncwarp();
#pragma unroll
    for (std::uint32_t i = 0; i < kOwn; ++i)
        if (lane + i * kWarp < n * n) matrix[lane + i * kWarp] = own[i];
    __syncwarp();
}

/// comb of one token from the softened logits: columns and rows in turn, by one thread.
///
/// The matrix is kept as row[j] * matrix[j][k] * column[k], so that a pass is n sums and n
/// reciprocals that do not wait for one another; about 60 cycles a pass and two passes an
/// iteration. A pass over rows whose factors are all 1 but for the last bits ends the loop: passes
/// never grow, so the at most 19 that are left change no element by more than 19 * 2.4e-7 of
/// itself.
template <std::uint32_t kStreams>
__device__ __forceinline__ void balance(const float* softened, std::uint32_t n,
                                        std::uint32_t iterations, float epsilon, float* comb) {
    constexpr float kSettled = 2.4e-7f;
    float matrix[kStreams][kStreams], row[kStreams], column[kStreams];
#pragma unroll
    for (std::uint32_t j = 0; j < kStreams; ++j) {
#pragma unroll
        for (std::uint32_t k = 0; k < kStreams; ++k)
            matrix[j][k] = j < n && k < n ? softened[j * n + k] : 0.0f;
        row[j] = column[j] = 1.0f;
    }
    for (std::uint32_t i = 0;; ++i) {
#pragma unroll
        for (std::uint32_t k = 0; k < kStreams; ++k) {
            float sum = 0.0f;
#pragma unroll
            for (std::uint32_t j = 0; j < kStreams; ++j) sum += row[j] * matrix[j][k];
            if (k < n) column[k] = __fdividef(column[k], column[k] * sum + epsilon);
        }
        if (i + 1 >= iterations) break;
        float change = 0.0f;
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j) {
            float sum = 0.0f;
#pragma unroll
            for (std::uint32_t k = 0; k < kStreams; ++k) sum += column[k] * matrix[j][k];
            const float factor = __fdividef(1.0f, row[j] * sum + epsilon);
            if (j < n) {
                row[j] *= factor;
                change = fmaxf(change, fabsf(factor - 1.0f));
            }
        }
        if (change <= kSettled) break;
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kStreams; ++j)
#pragma unroll
        for (std::uint32_t k = 0; k < kStreams; ++k)
            if (j < n && k < n) comb[j * n + k] = row[j] * matrix[j][k] * column[k];
}

/// The Sinkhorn iteration of one token's comb: `logits` in shared memory, overwritten; a warp
/// together.
template <std::uint32_t kStreams>
__device__ __forceinline__ void sinkhorn(float* logits, std::uint32_t n, std::uint32_t iterations,
                                         float epsilon, float* comb) {
    soften_rows(logits, n, epsilon);
    if (threadIdx.x % kWarp == 0) balance<kStreams>(logits, n, iterations, epsilon, comb);
}

}  // namespace plimsoll::kernels::cuda
