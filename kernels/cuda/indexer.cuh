#pragma once

// Indexer vectors on the way to their scores. Shared by chunks and decode steps, so that a row has
// the same score, bit for bit, in both.
//
// A score is sum_h w[h] * max(0, q[h] . k). Queries and packed rows are FP4 values times powers of
// two: float16 holds them exactly once a power of two is taken out of each head and each row, so
// the products run on tensor cores and only the order of their float32 sums differs from the CPU's.
//
// The order of k inside a product is free as long as both sides agree. Here lane 4g + c of a warp
// owns elements [c * dim / 4, (c + 1) * dim / 4) of query heads g and g + 8 of a tile, and of row
// g: for dim 128 one block of 32 that share an FP4 scale, 16 bytes of codes in one load.
// Instruction s takes elements 4s .. 4s + 3 of each lane's.

#include <cmath>
#include <type_traits>

#include "kernels/cuda/kv_rows.cuh"
#include "kernels/cuda/launch.hpp"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kHeadTiles = 4;  // of 16 heads
inline constexpr std::uint32_t kHeadsMax = 16 * kHeadTiles;
inline constexpr std::uint32_t kRowTile = 8;  // rows of a matrix instruction

/// What scoring reads, and for which rows.
struct IndexerScoring {
    const float* queries;       // [T, n_heads, dim], rotated and rounded (chunks only)
    const float* head_weights;  // [T, n_heads]
    IndexerRegion rows;
    float* scores;  // [T, row_capacity]
    std::uint32_t row_capacity;
    std::uint32_t n_heads;
    std::uint32_t dim;
    std::uint32_t top_k;
    std::uint32_t ratio;
    float weight_scale;  // 1 / sqrt(dim * n_heads)
};

[[nodiscard]] inline IndexerScoring indexer_scoring(const IndexerRows& rows, std::uint32_t n_heads,
                                                    std::uint32_t top_k, std::uint32_t ratio) {
    IndexerScoring scoring{};
    scoring.rows = indexer_region(rows);
    scoring.row_capacity = rows.row_capacity;
    scoring.n_heads = n_heads;
    scoring.dim = rows.dim;
    scoring.top_k = top_k;
    scoring.ratio = ratio;
    scoring.weight_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(rows.dim) * n_heads));
    return scoring;
}

/// Packed rows and their queries are exact in float16; others take indexer_f32.cuh.
[[nodiscard]] inline bool scores_on_tensor_cores(const IndexerScoring& p) {
    return p.rows.format == KvFormat::packed && p.n_heads <= kHeadsMax &&
           (p.dim == 32 || p.dim == 64 || p.dim == 128);
}

/// Rows that token t of the step sees; none of them needs a score where all are kept.
__device__ __forceinline__ std::uint32_t visible_rows(const StepState* state, std::uint32_t t,
                                                      std::uint32_t ratio) {
    return static_cast<std::uint32_t>((state->position + t + 1) / ratio);
}

// Queries.

/// A value in [-6, 6] to the nearest E2M1 value, ties to the even code: multiples of 0.5 below 1,
/// which adding 2^22 rounds to, and one bit of mantissa above. Three times faster than by codes.
__device__ __forceinline__ float e2m1_rounded(float value) {
    const float magnitude = fabsf(value);
    const float small = __fsub_rn(__fadd_rn(magnitude, 0x1p22f), 0x1p22f);
    const std::uint32_t bits = __float_as_uint(magnitude);
    const std::uint32_t large = (bits + 0x1fffffu + (bits >> 22 & 1u)) & 0xffc00000u;
    return copysignf(magnitude < 1.0f ? small : __uint_as_float(large), value);
}

/// One head, kPerLane consecutive elements a lane: rotation, and Hadamard and FP4 where `rounds`.
/// Additions in the CPU's order.
template <std::uint32_t kPerLane>
__device__ __forceinline__ void finish_query(float (&v)[kPerLane], const float2* rotation,
                                             std::uint32_t n_pairs, bool rounds) {
    constexpr std::uint32_t kDim = kPerLane * kWarp;
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t tail = kDim - 2 * n_pairs;
    if constexpr (kPerLane == 1) {
        const float other = __shfl_xor_sync(kAllLanes, v[0], 1);
        if (lane >= tail) {
            const float2 turn = rotation[(lane - tail) / 2];
            const bool is_first = lane % 2 == 0;
            const float2 pair = is_first ? make_float2(v[0], other) : make_float2(other, v[0]);
            const float2 turned = rotate(pair, turn);
            v[0] = is_first ? turned.x : turned.y;
        }
    } else {
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; i += 2) {
            const std::uint32_t at = lane * kPerLane + i;
            if (at < tail) continue;
            const float2 turned = rotate(make_float2(v[i], v[i + 1]), rotation[(at - tail) / 2]);
            v[i] = turned.x;
            v[i + 1] = turned.y;
        }
    }
    if (!rounds) return;
#pragma unroll
    for (std::uint32_t stride = 1; stride < kPerLane; stride *= 2)
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; ++i) {
            if ((i & stride) != 0) continue;
            const float a = v[i], b = v[i + stride];
            v[i] = a + b;
            v[i + stride] = a - b;
        }
#pragma unroll
    for (std::uint32_t mask = 1; mask < kWarp; mask *= 2)
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; ++i) {
            const float other = __shfl_xor_sync(kAllLanes, v[i], static_cast<int>(mask));
            v[i] = (lane & mask) != 0 ? other - v[i] : v[i] + other;
        }
    const auto scale = static_cast<float>(1.0 / sqrt(static_cast<double>(kDim)));
    float amax = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kPerLane; ++i) {
        v[i] *= scale;
        amax = fmaxf(amax, fabsf(v[i]));
    }
#pragma unroll
    for (std::uint32_t mask = 1; mask < kFp4Block / kPerLane; mask *= 2)
        amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, static_cast<int>(mask)));
    const std::int32_t exponent = fp4_exponent(amax);
    const float inverse = power_of_two_f32(-exponent), block_scale = power_of_two_f32(exponent);
#pragma unroll
    for (std::uint32_t i = 0; i < kPerLane; ++i) v[i] = e2m1_rounded(v[i] * inverse) * block_scale;
}

template <std::uint32_t kPerLane>
__device__ __forceinline__ void load_query(float (&v)[kPerLane], const float* head) {
    const float* from = head + threadIdx.x % kWarp * kPerLane;
    if constexpr (kPerLane % 4 == 0) {
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(from + i);
            memcpy(&v[i], &four, sizeof(four));
        }
    } else {
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; ++i) v[i] = from[i];
    }
}

template <std::uint32_t kPerLane>
__device__ __forceinline__ void store_query(const float (&v)[kPerLane], float* head) {
    float* to = head + threadIdx.x % kWarp * kPerLane;
    if constexpr (kPerLane % 4 == 0) {
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; i += 4)
            *reinterpret_cast<float4*>(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    } else {
#pragma unroll
        for (std::uint32_t i = 0; i < kPerLane; ++i) to[i] = v[i];
    }
}

/// Exponent of the power of two taken out of a head: its largest value comes to [1, 2).
__device__ __forceinline__ std::int32_t head_exponent(float amax) {
    return max(static_cast<std::int32_t>(__float_as_uint(amax) >> 23), 1) - 127;
}
__device__ __forceinline__ float reciprocal_power(std::int32_t exponent) {
    return power_of_two_f32(max(-exponent, -126));
}

// Fragments.

__device__ __forceinline__ std::uint32_t pack_halves(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    std::uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/// A lane's share of 64 query heads, zeros where there is no head, and the heads' weights with all
/// scales in them: weights[2 m] of head 16 m + g, weights[2 m + 1] of head 16 m + 8 + g.
template <std::uint32_t kDim>
struct QueryFragments {
    std::uint32_t halves[kHeadTiles][kDim / 16][4];
    float weights[2 * kHeadTiles];
};

/// A lane's share of a row: codes as stored, and all its block exponents.
template <std::uint32_t kDim>
struct RowShare {
    std::uint32_t codes[kDim / 32];
    std::uint32_t exponents;  // a byte a block
};

template <std::uint32_t kDim>
__device__ __forceinline__ RowShare<kDim> load_row_share(const IndexerScoring& p, std::uint32_t row,
                                                         std::uint32_t c) {
    RowShare<kDim> share{};
    if (row >= p.row_capacity) return share;
    using Codes = std::conditional_t<kDim == 128, uint4,
                                     std::conditional_t<kDim == 64, uint2, std::uint32_t>>;
    const unsigned char* codes = p.rows.base + std::uint64_t{row} * (kDim / 2) + c * (kDim / 8);
    const Codes loaded = *reinterpret_cast<const Codes*>(codes);
    memcpy(share.codes, &loaded, sizeof(loaded));
    share.exponents = *reinterpret_cast<const std::uint32_t*>(
        p.rows.base + p.rows.planes.exponents_bytes + std::uint64_t{row} * 4);
    if constexpr (kDim < 128) share.exponents &= (1u << kDim / 4) - 1;
    return share;
}

/// Stored exponent of the row's scale: its largest block's.
template <std::uint32_t kDim>
__device__ __forceinline__ std::uint32_t row_exponent(std::uint32_t exponents) {
    std::uint32_t largest = exponents & 255u;
#pragma unroll
    for (std::uint32_t block = 1; block < kDim / 32; ++block)
        largest = max(largest, exponents >> (8 * block) & 255u);
    return max(largest, 1u);
}
__device__ __forceinline__ float row_scale(std::uint32_t stored_exponent) {
    return __uint_as_float(stored_exponent << 23);
}

/// The share as pairs of halves, in units of the row's scale. E2M1's exponent and mantissa bits,
/// moved to a half's, are its value times 2^-14; blocks more than 2^-24 below the row's largest
/// vanish, as they would in a float32 sum.
template <std::uint32_t kDim>
__device__ __forceinline__ void decode_row_share(const RowShare<kDim>& share, std::uint32_t c,
                                                 std::uint32_t (&halves)[kDim / 8]) {
    const std::uint32_t block = c * (kDim / 4) / kFp4Block;
    const std::int32_t below = static_cast<std::int32_t>(row_exponent<kDim>(share.exponents)) -
                               static_cast<std::int32_t>(share.exponents >> (8 * block) & 255u);
    const __half2 scale = __float2half2_rn(below > 38 ? 0.0f : power_of_two_f32(14 - below));
#pragma unroll
    for (std::uint32_t word = 0; word < kDim / 32; ++word)
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t byte = share.codes[word] >> (8 * i);
            const std::uint32_t pair = (byte & 0xFu) | (byte & 0xF0u) << 12;
            const std::uint32_t bits = (pair & 0x00070007u) << 9 | (pair & 0x00080008u) << 12;
            __half2 value;
            memcpy(&value, &bits, sizeof(value));
            value = __hmul2(value, scale);
            memcpy(&halves[4 * word + i], &value, sizeof(value));
        }
}

/// Where a tile's row keeps the 16-byte unit `i` of lane c's share: units of 8 lanes that are read
/// or written together lie in different banks.
template <std::uint32_t kDim>
__device__ __forceinline__ std::uint32_t unit_of(std::uint32_t row, std::uint32_t c,
                                                 std::uint32_t i) {
    constexpr std::uint32_t kUnits = kDim / 32;
    const std::uint32_t unit = c * kUnits + (i ^ (c % kUnits));
    return row * 4 * kUnits + (kUnits == 4 ? unit ^ (row % 2 * 4) : unit);
}

/// Sums over the lane's heads of w * max(0, q . k) for rows 2c and 2c + 1 of a tile.
template <std::uint32_t kDim>
__device__ __forceinline__ void score_tile(const QueryFragments<kDim>& queries,
                                           const std::uint32_t (&row)[kDim / 8], float (&sums)[2]) {
    float products[kHeadTiles][4] = {};
#pragma unroll
    for (std::uint32_t s = 0; s < kDim / 16; ++s) {
        const std::uint32_t b[2] = {row[2 * s], row[2 * s + 1]};
#pragma unroll
        for (std::uint32_t m = 0; m < kHeadTiles; ++m)
            mma_f16(products[m], queries.halves[m][s], b);
    }
    sums[0] = sums[1] = 0.0f;
#pragma unroll
    for (std::uint32_t m = 0; m < kHeadTiles; ++m)
#pragma unroll
        for (std::uint32_t e = 0; e < 4; ++e)
            sums[e % 2] += queries.weights[2 * m + e / 2] * fmaxf(products[m][e], 0.0f);
}

}  // namespace plimsoll::kernels::cuda
