#pragma once

// The float32 tile of precise products. Every result is the same sum whatever the tile, the grid
// and the number of tokens: multiply-adds over 32 of k at a time in ascending order, each such sum
// added to the one of those before.

#include "kernels/cuda/decode_f32.cuh"
#include "kernels/cuda/product_arguments.cuh"

namespace plimsoll::kernels::cuda {

/// kTokens by 64 columns in 256 threads. `kPaired`: the columns are rows of two matrices of the
/// same shape (gate and up), of which a thread has the same ones.
template <WeightType kType_, std::uint32_t kTokens_, bool kPaired_>
struct PreciseTile {
    static constexpr WeightType kType = kType_;
    static constexpr std::uint32_t kTokens = kTokens_;
    static constexpr bool kPaired = kPaired_;
    static constexpr std::uint32_t kColumns = 64;
    static constexpr std::uint32_t kOutputs = kPaired ? kColumns / 2 : kColumns;  // rows a matrix
    static constexpr std::uint32_t kThreads = 256;
    static constexpr std::uint32_t kDepth = 32;  // of k at a time: 4 runs of 8
    static constexpr std::uint32_t kDown = kTokens == 64 ? 4 : 1;
    static constexpr std::uint32_t kAcross = kTokens == 64 ? 4 : 2;
    static constexpr std::uint32_t kThreadsAcross = kColumns / kAcross;
    static_assert(kThreads / kThreadsAcross * kDown == kTokens);
};

template <class Tile>
struct PrecisePlace {
    std::uint32_t across = threadIdx.x % Tile::kThreadsAcross;
    std::uint32_t down = threadIdx.x / Tile::kThreadsAcross;

    /// Row of the tile and weight row of a sum.
    __device__ std::uint32_t row(std::uint32_t m) const { return down * Tile::kDown + m; }
    __device__ static std::uint32_t weight_row(std::uint32_t column) {
        if constexpr (!Tile::kPaired) return column;
        constexpr std::uint32_t kHalf = Tile::kAcross / 2;
        return column / Tile::kAcross * kHalf + column % kHalf;
    }
    __device__ static std::uint32_t matrix(std::uint32_t column) {
        return Tile::kPaired ? column % Tile::kAcross / (Tile::kAcross / 2) : 0;
    }
};

template <class Tile>
using PreciseSums = float[Tile::kDown][Tile::kAcross];

template <class Tile>
struct PreciseShared {
    float inputs[Tile::kDepth][Tile::kTokens];
    float weights[Tile::kDepth][Tile::kColumns];
};

/// What a thread brings to shared memory for 32 of k: a run of 8 of one weight row and of one input
/// row. Neighbouring threads hold neighbouring rows, so that their stores meet no bank twice.
template <class Tile>
struct PreciseFetch {
    static constexpr std::uint32_t kRun = 8;
    float weights[kRun];
    float inputs[kRun];

    __device__ __forceinline__ void load(const TileSource& source, const float* input_row,
                                         std::uint32_t k_first) {
        const std::uint32_t column = threadIdx.x % Tile::kColumns;
        const std::uint32_t weight_k = k_first + threadIdx.x / Tile::kColumns * kRun;
        const std::uint32_t row = source.row_first + PrecisePlace<Tile>::weight_row(column);
        const std::uint32_t input_k = k_first + threadIdx.x / Tile::kTokens * kRun;
        const bool has_input = threadIdx.x < 4 * Tile::kTokens && input_row != nullptr;
#pragma unroll
        for (std::uint32_t i = 0; i < kRun; ++i) weights[i] = inputs[i] = 0.0f;
        if (row < source.row_end && weight_k < source.n_in)
            decode_eight_f32<Tile::kType>(source.weights[PrecisePlace<Tile>::matrix(column)], row,
                                          source.n_in, weight_k, weights);
        if (!has_input || input_k >= source.n_in) return;
        const auto* from = reinterpret_cast<const float4*>(input_row + input_k);
        const float4 low = from[0];
        const float4 high = from[1];
        inputs[0] = low.x, inputs[1] = low.y, inputs[2] = low.z, inputs[3] = low.w;
        inputs[4] = high.x, inputs[5] = high.y, inputs[6] = high.z, inputs[7] = high.w;
    }
    __device__ __forceinline__ void store(PreciseShared<Tile>& shared) const {
        const std::uint32_t column = threadIdx.x % Tile::kColumns;
        const std::uint32_t run = threadIdx.x / Tile::kColumns * kRun;
#pragma unroll
        for (std::uint32_t i = 0; i < kRun; ++i) shared.weights[run + i][column] = weights[i];
        if (threadIdx.x >= 4 * Tile::kTokens) return;
#pragma unroll
        for (std::uint32_t i = 0; i < kRun; ++i)
            shared.inputs[threadIdx.x / Tile::kTokens * kRun + i][threadIdx.x % Tile::kTokens] =
                inputs[i];
    }
};

template <class Tile>
__device__ __forceinline__ void multiply_precise_depth(const PreciseShared<Tile>& shared,
                                                       const PrecisePlace<Tile>& place,
                                                       PreciseSums<Tile>& sums) {
    PreciseSums<Tile> partial = {};
#pragma unroll 8
    for (std::uint32_t k = 0; k < Tile::kDepth; ++k) {
        float x[Tile::kDown];
        float w[Tile::kAcross];
#pragma unroll
        for (std::uint32_t m = 0; m < Tile::kDown; ++m) x[m] = shared.inputs[k][place.row(m)];
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kAcross; ++n)
            w[n] = shared.weights[k][place.across * Tile::kAcross + n];
#pragma unroll
        for (std::uint32_t m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (std::uint32_t n = 0; n < Tile::kAcross; ++n)
                partial[m][n] = fmaf(x[m], w[n], partial[m][n]);
    }
#pragma unroll
    for (std::uint32_t m = 0; m < Tile::kDown; ++m)
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kAcross; ++n)
            sums[m][n] = __fadd_rn(sums[m][n], partial[m][n]);
}

/// sums = inputs . weights. `input_row(r)` gives the row of the input that is row r of the tile;
/// rows from `n_rows` on have none.
template <class Tile, class InputRow>
__device__ __forceinline__ void multiply_precise(const TileSource& source, std::uint32_t n_rows,
                                                 const InputRow& input_row,
                                                 PreciseSums<Tile>& sums) {
    __shared__ PreciseShared<Tile> shared;
    const PrecisePlace<Tile> place;
    const std::uint32_t row = threadIdx.x % Tile::kTokens;
    const float* from = nullptr;
    if (row < n_rows)
        from = static_cast<const float*>(source.input) +
               static_cast<std::uint64_t>(input_row(row)) * source.input_stride;
#pragma unroll
    for (std::uint32_t m = 0; m < Tile::kDown; ++m)
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kAcross; ++n) sums[m][n] = 0.0f;
    PreciseFetch<Tile> next;
    next.load(source, from, 0);
    for (std::uint32_t k = 0; k < source.n_in; k += Tile::kDepth) {
        __syncthreads();
        next.store(shared);
        __syncthreads();
        if (k + Tile::kDepth < source.n_in) next.load(source, from, k + Tile::kDepth);
        multiply_precise_depth<Tile>(shared, place, sums);
    }
}

}  // namespace plimsoll::kernels::cuda
