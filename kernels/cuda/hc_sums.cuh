#pragma once

// The sums over a token's streams that a decode step's launches hand on: the launch that merges
// (hc_tail.cuh) leaves those of its blocks' columns, the one behind that mixes (hc_mix_row.cuh)
// adds them up.
//
// They are the products of fn's rows with the streams X, and the elements of G = X . X^T: the
// diagonal of G gives the norm of X, and the norm of the mix u = sum_s pre[s] X[s] is the
// quadratic form |u|^2 = sum pre[s] pre[t] G[s][t]. So one pass over the columns gives all that
// mixing needs, and no block has to meet another.

#include "kernels/cuda/band_stream.cuh"
#include "kernels/cuda/hyper_connection.cuh"

namespace plimsoll::kernels::cuda::hc {

inline constexpr std::uint32_t kBlocksMax = 128;    // that leave sums
inline constexpr std::uint32_t kColumnsMax = 64;    // of a block, where kBlocksMax suffice
inline constexpr std::uint32_t kColumnsAtOnce = 4;  // a band of rows of the product before

__host__ __device__ constexpr std::uint32_t fn_rows(std::uint32_t n_streams) {
    return n_streams * (n_streams + 2);
}
__host__ __device__ constexpr std::uint32_t gram_values(std::uint32_t n_streams) {
    return n_streams * (n_streams + 1) / 2;
}
__host__ __device__ constexpr std::uint32_t coefficient_count(std::uint32_t n_streams) {
    return n_streams * (n_streams + 1);
}
/// Of a block: fn's rows, then G[s][t] for t <= s, row by row. Sum `value` of block `block` lies at
/// [value * kBlocksMax + block].
__host__ __device__ constexpr std::uint32_t sum_count(std::uint32_t n_streams) {
    return fn_rows(n_streams) + gram_values(n_streams);
}
inline constexpr std::uint32_t kSumsMax = sum_count(kStreamsMax);
inline constexpr std::uint32_t kCoefficientsMax = coefficient_count(kStreamsMax);

/// Where G[s][s] lies among the values of G.
__host__ __device__ constexpr std::uint32_t diagonal_value(std::uint32_t s) {
    return s * (s + 3) / 2;
}

/// Blocks of a launch that merges, of which block b owns the columns share_of_rows(hidden, n, b):
/// one a multiprocessor, but no more than make the longest share shorter.
inline std::uint32_t block_count(std::uint32_t hidden, std::uint32_t n_multiprocessors) {
    const auto parts = [](std::uint32_t n, std::uint32_t size) { return (n + size - 1) / size; };
    const std::uint32_t bands = parts(hidden, kColumnsAtOnce);
    std::uint32_t n_blocks = parts(hidden, kColumnsMax);
    if (n_blocks < n_multiprocessors) n_blocks = n_multiprocessors;
    if (n_blocks > kBlocksMax) n_blocks = kBlocksMax;
    if (n_blocks > bands) n_blocks = bands;
    return parts(bands, parts(bands, n_blocks));
}

}  // namespace plimsoll::kernels::cuda::hc
