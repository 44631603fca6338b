#pragma once

// Scores in float32 multiply-adds: for rows kept as float32, whose choices hang on small
// differences, and for widths and head counts that the tensor-core path is not built for.

#include "kernels/cuda/indexer.cuh"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kPlainThreads = 256;
inline constexpr std::uint32_t kPlainRows = kWarp;  // of a tile: a row a lane
inline constexpr std::uint32_t kPlainHeads = 8;     // that a lane multiplies its row with at a time

/// Rows are 4 floats longer in shared memory, so that 8 lanes' 16-byte loads meet no bank twice.
__host__ __device__ constexpr std::uint32_t plain_stride(std::uint32_t dim) { return dim + 4; }

/// Queries of one token and a tile of rows.
[[nodiscard]] inline std::uint64_t plain_shared_bytes(std::uint32_t n_heads, std::uint32_t dim) {
    return std::uint64_t{n_heads + kPlainRows} * plain_stride(dim) * sizeof(float);
}

__device__ __forceinline__ float indexer_element(const IndexerScoring& p, std::uint32_t row,
                                                 std::uint32_t i) {
    if (p.rows.format == KvFormat::f32)
        return reinterpret_cast<const float*>(p.rows.base)[std::uint64_t{row} * p.dim + i];
    const unsigned char* codes = p.rows.base + std::uint64_t{row} * p.rows.planes.code_stride_bytes;
    const unsigned char* exponents = p.rows.base + p.rows.planes.exponents_bytes +
                                     std::uint64_t{row} * p.rows.planes.exponent_stride_bytes;
    const std::uint32_t code = codes[i / 2] >> (i % 2 * 4) & 15u;
    return e2m1_value(code) *
           power_of_two_f32(static_cast<std::int32_t>(exponents[i / kFp4Block]) - 127);
}

/// One row of a lane with the warp's heads: sum of w * max(0, q . k).
__device__ __forceinline__ float plain_score(const IndexerScoring& p, const float* queries,
                                             const float* weights, const float* row) {
    const std::uint32_t stride = plain_stride(p.dim);
    float sum = 0.0f;
    for (std::uint32_t first = threadIdx.x / kWarp * kPlainHeads; first < p.n_heads;
         first += kPlainThreads / kWarp * kPlainHeads) {
        float products[kPlainHeads] = {};
        for (std::uint32_t i = 0; i < p.dim; i += 4) {
            const float4 k = *reinterpret_cast<const float4*>(row + i);
#pragma unroll
            for (std::uint32_t h = 0; h < kPlainHeads; ++h) {
                if (first + h >= p.n_heads) break;
                const float4 q =
                    *reinterpret_cast<const float4*>(queries + (first + h) * stride + i);
                products[h] += q.x * k.x;
                products[h] += q.y * k.y;
                products[h] += q.z * k.z;
                products[h] += q.w * k.w;
            }
        }
#pragma unroll
        for (std::uint32_t h = 0; h < kPlainHeads; ++h)
            if (first + h < p.n_heads)
                sum += weights[first + h] * p.weight_scale * fmaxf(products[h], 0.0f);
    }
    return sum;
}

/// Scores of rows [32 * tile, ...) for every n_tiles-th tile, of one token whose queries lie in
/// shared memory at plain_stride. A block together; synchronises first.
__device__ __forceinline__ void plain_scores(const IndexerScoring& p, const float* queries,
                                             const float* weights, float* rows,
                                             std::uint32_t n_rows, std::uint32_t first_tile,
                                             std::uint32_t n_tiles, float* scores) {
    __shared__ float partials[kPlainThreads / kWarp][kPlainRows];
    const std::uint32_t lane = threadIdx.x % kWarp, stride = plain_stride(p.dim);
    for (std::uint32_t first = first_tile * kPlainRows; first < n_rows;
         first += n_tiles * kPlainRows) {
        __syncthreads();
        for (std::uint32_t at = threadIdx.x; at < kPlainRows * p.dim; at += kPlainThreads) {
            const std::uint32_t row = at / p.dim, i = at % p.dim;
            rows[row * stride + i] = first + row < n_rows ? indexer_element(p, first + row, i) : 0;
        }
        __syncthreads();
        partials[threadIdx.x / kWarp][lane] =
            plain_score(p, queries, weights, rows + lane * stride);
        __syncthreads();
        if (threadIdx.x < kPlainRows && first + lane < n_rows) {
            float sum = 0.0f;
            for (std::uint32_t warp = 0; warp < kPlainThreads / kWarp; ++warp)
                sum += partials[warp][lane];
            scores[first + lane] = sum;
        }
    }
}

}  // namespace plimsoll::kernels::cuda
