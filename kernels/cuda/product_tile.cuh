#pragma once

// The tensor-core tile that all fast products of chunks share: kTokens input rows times kOutputs
// weight rows, over all of k, in one block.
//
// Both come through a ring of asynchronous copies: inputs a step (64 of k) at a time, weights as
// raw planes a tile (one step, or the four of a 256-block) at a time. Weights are decoded by the
// warp that multiplies them, right before the instruction: a warp's 64 (or 32) columns by all its
// rows, so a weight is decoded kWarpsDown times a block. Per step and block of 128 x 128: 2.1
// MFLOP, 24.5 KB from L2 with Q8_0; per warp of 64 x 64: 128 matrix instructions, about 210 for
// decoding Q8_0.

#include "kernels/cuda/product_fetch.cuh"

namespace plimsoll::kernels::cuda {

/// Where a warp's fragments are in its block's tile.
template <class Tile>
struct TilePlace {
    std::uint32_t g = threadIdx.x % kWarp / 4;
    std::uint32_t c = threadIdx.x % 4;
    std::uint32_t warp_across = threadIdx.x / kWarp % Tile::kWarpsAcross;
    std::uint32_t token_first = threadIdx.x / kWarp / Tile::kWarpsAcross * Tile::kWarpTokens;

    /// First column of a fragment; with kPaired the later half of a warp's fragments are the other
    /// matrix's columns.
    __device__ std::uint32_t column(std::uint32_t fragment) const {
        if constexpr (Tile::kPaired) {
            const std::uint32_t half = Tile::kAcross / 2;
            return fragment / half * (Tile::kOutputs / 2) + warp_across * (Tile::kWarpOutputs / 2) +
                   fragment % half * 16;
        } else {
            return warp_across * Tile::kWarpOutputs + fragment * 16;
        }
    }
};

template <class Tile>
using TileSums = float[Tile::kAcross][Tile::kDown][4];

/// A thread's inputs of a step, pairs of halves 2s and 2s + 1 for instruction s; from float32 as
/// the sum of two halves, about 22 bits, for values within twice float16's range.
template <class Tile, std::uint32_t kActive>
struct InputFragments {
    std::uint32_t high[kActive][8];
    std::uint32_t low[Tile::kIsF32 ? kActive : 1][8];

    __device__ __forceinline__ void load(const unsigned char* inputs,
                                         const TilePlace<Tile>& place) {
        const unsigned char* first = inputs + place.token_first * Tile::kInputPitch;
#pragma unroll
        for (std::uint32_t n = 0; n < kActive; ++n) {
            const unsigned char* rows = first + 8 * n * Tile::kInputPitch;
            const unsigned char* own_row = rows + place.g * Tile::kInputPitch;
            if constexpr (Tile::kIsF32)
                split(own_row, place, high[n], low[n]);
            else if constexpr (Tile::Format::kIsHalves)
                load_matrices(rows, high[n]);
            else
                load_sixteen(own_row, place.g, place.c, high[n]);
        }
    }
    __device__ static __forceinline__ void load_matrices(const unsigned char* rows,
                                                         std::uint32_t (&out)[8]) {
        const std::uint32_t row = threadIdx.x % 8;
        const std::uint32_t chunk = threadIdx.x % kWarp / 8;
        std::uint32_t quarter[4];
#pragma unroll
        for (std::uint32_t j = 0; j < 2; ++j) {
            load_matrix(quarter, rows + row * Tile::kInputPitch +
                                     16 * chunk_position<8>(row, 4 * j + chunk));
#pragma unroll
            for (std::uint32_t i = 0; i < 4; ++i) out[4 * j + i] = quarter[i];
        }
    }
    __device__ static __forceinline__ void split(const unsigned char* row,
                                                 const TilePlace<Tile>& place,
                                                 std::uint32_t (&out_high)[8],
                                                 std::uint32_t (&out_low)[8]) {
        const __half2 most = __float2half2_rn(65504.0f);
#pragma unroll
        for (std::uint32_t j = 0; j < 8; ++j) {
            const auto x =
                shared_value<float2>(row + 32 * chunk_position<8>(place.g, j) + 8 * place.c);
            const __half2 rounded =
                __hmin2(__hmax2(__floats2half2_rn(x.x, x.y), __hneg2(most)), most);
            const float2 wide = __half22float2(rounded);
            out_high[j] = bits_of(rounded);
            out_low[j] = bits_of(__floats2half2_rn(x.x - wide.x, x.y - wide.y));
        }
    }
};

/// The first operands of a step's four instructions for 16 weight rows. As the second operand
/// weights would leave the inputs to be gathered from rows g and g + 8 by moves; decoded, they go
/// straight into the four registers that the first one takes in a row.
template <class Tile>
__device__ __forceinline__ void load_weights(const TilePlanes& planes, const TilePlace<Tile>& place,
                                             std::uint32_t fragment, std::uint32_t step,
                                             std::uint32_t (&a)[4][4]) {
    using Format = typename Tile::Format;
    if constexpr (Format::kIsHalves) {
        const std::uint32_t row = threadIdx.x % 16;
        const std::uint32_t chunk = threadIdx.x % kWarp / 16;
        const unsigned char* from =
            planes.quants + (place.column(fragment) + row) * Format::kQuantsPitch;
#pragma unroll
        for (std::uint32_t s = 0; s < 4; ++s)
            load_matrix(a[s], from + 16 * chunk_position<8>(row, 2 * s + chunk));
    } else {
        WeightFragment w[2];
#pragma unroll
        for (std::uint32_t h = 0; h < 2; ++h)
            Format::decode(planes, place.column(fragment) + 8 * h + place.g, place.c,
                           step % Tile::kSteps, step / Tile::kSteps, w[h]);
#pragma unroll
        for (std::uint32_t s = 0; s < 4; ++s)
#pragma unroll
            for (std::uint32_t i = 0; i < 4; ++i) a[s][i] = w[i % 2][2 * s + i / 2];
    }
}

template <class Tile, std::uint32_t kActive>
__device__ __forceinline__ void multiply_step(const unsigned char* inputs, const TilePlanes& planes,
                                              const TilePlace<Tile>& place, std::uint32_t step,
                                              TileSums<Tile>& sums) {
    InputFragments<Tile, kActive> x;
    x.load(inputs, place);
#pragma unroll
    for (std::uint32_t f = 0; f < Tile::kAcross; ++f) {
        std::uint32_t a[4][4];
        load_weights<Tile>(planes, place, f, step, a);
#pragma unroll
        for (std::uint32_t s = 0; s < 4; ++s)
#pragma unroll
            for (std::uint32_t n = 0; n < kActive; ++n) {
                const std::uint32_t high[2] = {x.high[n][2 * s], x.high[n][2 * s + 1]};
                mma_f16(sums[f][n], a[s], high);
                if constexpr (Tile::kIsF32) {
                    const std::uint32_t low[2] = {x.low[n][2 * s], x.low[n][2 * s + 1]};
                    mma_f16(sums[f][n], a[s], low);
                }
            }
    }
}

/// multiply_step with the code for `active` fragments, or for the fewest there is code for.
template <class Tile, std::uint32_t kActive>
__device__ __forceinline__ void multiply_active(std::uint32_t active, const unsigned char* inputs,
                                                const TilePlanes& planes,
                                                const TilePlace<Tile>& place, std::uint32_t step,
                                                TileSums<Tile>& sums) {
    if constexpr (kActive > Tile::kActiveMin) {
        if (active < kActive) {
            multiply_active<Tile, kActive - 1>(active, inputs, planes, place, step, sums);
            return;
        }
    }
    multiply_step<Tile, kActive>(inputs, planes, place, step, sums);
}

/// The instruction leaves a thread sums of two rows and one column. Neighbours in g exchange one
/// each, so that pairs are of one row and lie side by side in memory.
template <class Tile>
__device__ __forceinline__ void pair_columns(TileSums<Tile>& sums) {
    const bool odd = threadIdx.x / 4 % 2 != 0;
#pragma unroll
    for (std::uint32_t f = 0; f < Tile::kAcross; ++f)
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kDown; ++n)
#pragma unroll
            for (std::uint32_t i = 0; i < 4; i += 2) {
                const float sent = odd ? sums[f][n][i] : sums[f][n][i + 1];
                const float received = __shfl_xor_sync(kAllLanes, sent, 4);
                if (odd)
                    sums[f][n][i] = received;
                else
                    sums[f][n][i + 1] = received;
            }
}

/// sums = inputs . weights, as for_each_pair gives them. `input_row(r)` gives the row of the input
/// that is row r of the tile, of the first `n_rows` > 0; the others' sums are of no use.
template <class Tile, class InputRow>
__device__ __forceinline__ void multiply_tile(const TileSource& source, std::uint32_t n_rows,
                                              const InputRow& input_row, TileSums<Tile>& sums) {
    unsigned char* shared = dynamic_shared();
    const TilePlace<Tile> place;
    const TileFetch<Tile> fetch(source, n_rows, input_row);
    auto* grid = reinterpret_cast<std::uint64_t*>(shared + Tile::kGridAt);
    if constexpr (Tile::kType == WeightType::iq2_xxs)
        for (std::uint32_t i = threadIdx.x; i < 256; i += Tile::kThreads)
            grid[i] = kIq2Grid.rows[i];
#pragma unroll
    for (std::uint32_t f = 0; f < Tile::kAcross; ++f)
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kDown; ++n)
#pragma unroll
            for (std::uint32_t i = 0; i < 4; ++i) sums[f][n][i] = 0.0f;

    constexpr std::uint32_t kSpan = Tile::kSteps * kStepElements;
    const std::uint32_t n_steps = (source.n_in + kSpan - 1) / kSpan * Tile::kSteps;
    const auto slot = [&](std::uint32_t step) {
        return shared + Tile::kSlotsAt + step / Tile::kSteps % Tile::kSlots * Tile::kSlotBytes;
    };
    const auto fetch_step = [&](std::uint32_t step) {
        if (step < n_steps) {
            fetch.inputs(step, shared + step % Tile::kStages * Tile::kInputBytes);
            if (step % Tile::kSteps == 0) fetch.weights(step / Tile::kSteps, slot(step));
        }
        commit_copies();
    };
    const std::uint32_t warp_rows = n_rows > place.token_first ? n_rows - place.token_first : 0;
    const std::uint32_t active = min((warp_rows + 7) / 8, Tile::kDown);
    for (std::uint32_t step = 0; step + 1 < Tile::kStages; ++step) fetch_step(step);
#pragma unroll 1
    for (std::uint32_t step = 0; step < n_steps; ++step) {
        wait_for_copies<Tile::kStages - 2>();
        __syncthreads();  // also: all have finished the step whose buffers are filled next
        fetch_step(step + Tile::kStages - 1);
        const unsigned char* from = slot(step);
        if (active > 0)
            multiply_active<Tile, Tile::kDown>(
                active, shared + step % Tile::kStages * Tile::kInputBytes,
                {from, from + Tile::kScalesAt, from + Tile::kTailAt, grid}, place, step, sums);
    }
    pair_columns<Tile>(sums);
}

/// Results two by two: store(row, column, f, n, i) for the pair sums[f][n][i], sums[f][n][i + 1],
/// which belongs to a row of the tile and to an even column and the one behind it.
template <class Tile, std::uint32_t kFragments, class Store>
__device__ __forceinline__ void for_each_pair(const Store& store) {
    const TilePlace<Tile> place;
#pragma unroll
    for (std::uint32_t n = 0; n < Tile::kDown; ++n)
#pragma unroll
        for (std::uint32_t f = 0; f < kFragments; ++f)
#pragma unroll
            for (std::uint32_t h = 0; h < 2; ++h)
                store(place.token_first + 8 * n + 2 * place.c + place.g % 2,
                      place.column(f) + 8 * h + place.g / 2 * 2, f, n, 2 * h);
}

}  // namespace plimsoll::kernels::cuda
