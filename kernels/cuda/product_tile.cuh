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

#include "kernels/cuda/product_arguments.cuh"

namespace plimsoll::kernels::cuda {

/// `kPaired`: the columns are half of one matrix and half of another of the same shape (gate and
/// up), so that a thread has both of an output. `kActiveMin`: the fewest 8-row fragments of a warp
/// for which code of its own is made; tiles of experts are seldom full.
template <WeightType kType_, ElementType kInput_, std::uint32_t kTokens_, std::uint32_t kOutputs_,
          std::uint32_t kWarpsDown_, std::uint32_t kWarpsAcross_, bool kPaired_,
          std::uint32_t kActiveMin_, std::uint32_t kStages_,
          std::uint32_t kBlocksPerMultiprocessor_>
struct ProductTile {
    static constexpr WeightType kType = kType_;
    using Format = TileFormat<kType>;
    static constexpr ElementType kInput = kInput_;
    static constexpr std::uint32_t kTokens = kTokens_;
    static constexpr std::uint32_t kOutputs = kOutputs_;
    static constexpr std::uint32_t kWarpsDown = kWarpsDown_;
    static constexpr std::uint32_t kWarpsAcross = kWarpsAcross_;
    static constexpr bool kPaired = kPaired_;
    static constexpr std::uint32_t kActiveMin = kActiveMin_;
    static constexpr std::uint32_t kStages = kStages_;
    static constexpr std::uint32_t kBlocksPerMultiprocessor = kBlocksPerMultiprocessor_;

    static constexpr std::uint32_t kThreads = kWarpsDown * kWarpsAcross * kWarp;
    static constexpr std::uint32_t kWarpTokens = kTokens / kWarpsDown;
    static constexpr std::uint32_t kWarpOutputs = kOutputs / kWarpsAcross;
    static constexpr std::uint32_t kDown = kWarpTokens / 8;  // fragments of a warp
    static constexpr std::uint32_t kAcross = kWarpOutputs / 16;

    static constexpr bool kIsF32 = kInput == ElementType::f32;
    static constexpr std::uint32_t kInputChunks = kIsF32 ? 16 : 8;  // of 16 bytes, a row and step
    static constexpr std::uint32_t kInputPitch = kIsF32 ? 256 : 128;
    static constexpr std::uint32_t kInputRows = kTokens * kInputChunks / kThreads;  // a thread
    static constexpr std::uint32_t kInputBytes = kTokens * kInputPitch;

    static constexpr std::uint32_t kSteps = Format::kSteps;
    /// A tile of several steps is fetched with its first one, at most kStages - 1 steps ahead: two
    /// suffice.
    static constexpr std::uint32_t kSlots = kSteps == 1 ? kStages : 2;
    static constexpr std::uint32_t kScalesAt = kOutputs * Format::kQuantsPitch;
    static constexpr std::uint32_t kTailAt = kScalesAt + kOutputs * Format::kScalesBytes;
    static constexpr std::uint32_t kSlotBytes = kTailAt + kOutputs * Format::kTailBytes;
    static constexpr std::uint32_t kSlotsAt = kStages * kInputBytes;
    static constexpr std::uint32_t kGridAt = kSlotsAt + kSlots * kSlotBytes;
    static constexpr std::uint32_t kSharedBytes =
        kGridAt + (kType == WeightType::iq2_xxs ? sizeof(Iq2Grid) : 0);

    static_assert(kStages >= 2 && kStages <= kSteps + kStages * (kSteps == 1) + 1);
    static_assert(kWarpTokens % 8 == 0 && kWarpOutputs % 16 == 0);
    static_assert(kTokens * kInputChunks % kThreads == 0);
    static_assert(kOutputs == kThreads);  // a thread fetches the scales of one column
    static_assert(!kIsF32 || kSteps == 1);
};

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

/// Eight float32 or bfloat16 weights as halves.
template <WeightType kType>
__device__ __forceinline__ uint4 narrow_eight(const unsigned char* from) {
    float values[8];
    if constexpr (kType == WeightType::f32) {
        memcpy(values, __builtin_assume_aligned(from, 16), sizeof(values));
    } else {
        std::uint16_t bits[8];
        memcpy(bits, __builtin_assume_aligned(from, 16), sizeof(bits));
        for (std::uint32_t i = 0; i < 8; ++i)
            values[i] = __uint_as_float(static_cast<std::uint32_t>(bits[i]) << 16);
    }
    std::uint32_t pairs[4];
    for (std::uint32_t i = 0; i < 4; ++i)
        pairs[i] = bits_of(
            __floats2half2_rn(saturate_f16(values[2 * i]), saturate_f16(values[2 * i + 1])));
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/// What a thread fetches: pieces of 16 bytes at the same place in rows that follow one another at
/// equal distances, in the tile's inputs and in its weights. Rows that the tile does not have are
/// other rows once more, whose results nobody stores; zeros stand in for k past the end alone.
template <class Tile>
class TileFetch {
public:
    template <class InputRow>
    __device__ __forceinline__ TileFetch(const TileSource& source, std::uint32_t n_rows,
                                         const InputRow& input_row)
        : source_(source) {
        const auto stride = static_cast<std::uint32_t>(source.input_stride / kInputElements);
#pragma unroll
        for (std::uint32_t i = 0; i < Tile::kInputRows; ++i) {
            const std::uint32_t row = min(first_input_row() + i * kInputStep, n_rows - 1);
            input_at_[i] = static_cast<std::uint32_t>(input_row(row)) * stride;
        }
        const std::uint32_t row_pieces = source.n_in / Block::kElements * Block::kQuantsBytes / 16;
#pragma unroll
        for (std::uint32_t i = 0; i < kQuantRows; ++i)
            quants_at_[i] = weight_row(quant_row() + i * kQuantStep) * row_pieces;
        scales_at_ = weight_row(threadIdx.x) * (source.n_in / Block::kElements);
    }

    __device__ __forceinline__ void inputs(std::uint32_t step, unsigned char* to) const {
        const std::uint32_t chunk = threadIdx.x % Tile::kInputChunks;
        const std::uint32_t row = first_input_row();
        const std::uint32_t column = Tile::kIsF32
                                         ? step * kStepElements + 4 * chunk
                                         : step / Tile::kSteps * (Tile::kSteps * kStepElements) +
                                               Format::input_column(step % Tile::kSteps, chunk);
        // Floats are stored by eights, as chunks of halves are.
        const std::uint32_t position = Tile::kIsF32
                                           ? 2 * chunk_position<8>(row, chunk / 2) + chunk % 2
                                       : chunk_position < Format::kIsHalves ? 8
                                                                            : 2 > (row, chunk);
        const bool valid = column < source_.n_in;
        const std::uint32_t piece = valid ? column / kInputElements : 0;
        unsigned char* destination = to + row * Tile::kInputPitch + 16 * position;
#pragma unroll
        for (std::uint32_t i = 0; i < Tile::kInputRows; ++i)
            copy_async16(destination + i * kInputStep * Tile::kInputPitch,
                         piece_at(source_.input, input_at_[i] + piece), valid);
    }

    __device__ __forceinline__ void weights(std::uint32_t span, unsigned char* to) const {
        const std::uint32_t chunk = threadIdx.x % kChunks;
        const std::uint32_t row_pieces = source_.n_in / Block::kElements * Block::kQuantsBytes / 16;
        const std::uint32_t piece = (span * kChunks + chunk) * kChunkPieces;
        const bool valid = piece < row_pieces;
        const std::uint32_t position =
            Format::kIsHalves ? chunk_position<8>(quant_row(), chunk) : chunk;
        unsigned char* destination = to + quant_row() * Format::kQuantsPitch + 16 * position;
#pragma unroll
        for (std::uint32_t i = 0; i < kQuantRows; ++i) {
            const WeightPlanes& planes = source_.weights[i * kQuantStep / kMatrixRows];
            const unsigned char* from =
                piece_at(planes.quants, quants_at_[i] + (valid ? piece : 0));
            unsigned char* row_to = destination + i * kQuantStep * Format::kQuantsPitch;
            if constexpr (kNarrowed)
                *reinterpret_cast<uint4*>(row_to) =
                    valid ? narrow_eight<Tile::kType>(from) : make_uint4(0, 0, 0, 0);
            else
                copy_async16(row_to, from, valid);
        }
        if constexpr (Format::kScalesBytes == 4) half_scales(span, to + Tile::kScalesAt);
        if constexpr (Format::kScalesBytes == 16) {
            const std::uint32_t block = scales_at_ + span;
            copy_async16(to + Tile::kScalesAt + 16 * threadIdx.x,
                         piece_at(own(&WeightPlanes::scales), block));
            if constexpr (Format::kTailBytes == 4)
                copy_async<4>(to + Tile::kTailAt + 4 * threadIdx.x,
                              own(&WeightPlanes::tail) + std::uint64_t{block} * 4);
        }
    }

private:
    using Format = typename Tile::Format;
    using Block = WeightBlock<Tile::kType>;
    static constexpr bool kNarrowed =
        Tile::kType == WeightType::f32 || Tile::kType == WeightType::bf16;
    static constexpr std::uint32_t kInputElements = Tile::kIsF32 ? 4 : 8;  // of 16 bytes
    static constexpr std::uint32_t kInputStep = Tile::kThreads / Tile::kInputChunks;
    static constexpr std::uint32_t kChunks = Format::kQuantsBytes / 16;
    static constexpr std::uint32_t kChunkPieces = kNarrowed ? Block::kQuantsBytes / 2 : 1;
    static constexpr std::uint32_t kQuantStep = Tile::kThreads / kChunks;
    static constexpr std::uint32_t kQuantRows = Tile::kOutputs / kQuantStep;
    static constexpr std::uint32_t kMatrixRows =
        Tile::kPaired ? Tile::kOutputs / 2 : Tile::kOutputs;
    static_assert(kMatrixRows % kQuantStep == 0);

    __device__ static std::uint32_t first_input_row() { return threadIdx.x / Tile::kInputChunks; }
    __device__ static std::uint32_t quant_row() { return threadIdx.x / kChunks; }
    __device__ static const unsigned char* piece_at(const void* base, std::uint32_t piece) {
        return static_cast<const unsigned char*>(base) + std::uint64_t{piece} * 16;
    }
    /// A plane of the matrix that the column of this thread's number belongs to: chosen, not
    /// indexed, or the pointers would lie in local memory.
    __device__ const unsigned char* own(const unsigned char* WeightPlanes::*plane) const {
        return Tile::kPaired && threadIdx.x >= kMatrixRows ? source_.weights[1].*plane
                                                           : source_.weights[0].*plane;
    }
    __device__ std::uint32_t weight_row(std::uint32_t column) const {
        return min(source_.row_first + column % kMatrixRows, source_.row_end - 1);
    }

    /// float16 scales of two blocks, 4 bytes a row. With an odd number of blocks a row they are not
    /// aligned to 4, and are copied by hand.
    __device__ __forceinline__ void half_scales(std::uint32_t span, unsigned char* to) const {
        const std::uint32_t blocks = source_.n_in / Block::kElements;
        const std::uint32_t block = Tile::kSteps == 1 ? 2 * span : span / 2 * 2;
        const unsigned char* from =
            own(&WeightPlanes::scales) + (std::uint64_t{scales_at_} + block) * 2;
        if (blocks % 2 == 0) {
            copy_async<4>(to + 4 * threadIdx.x, from);
        } else {
            const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
            const std::uint32_t high = block + 1 < blocks ? halves[1] : 0u;
            *reinterpret_cast<std::uint32_t*>(to + 4 * threadIdx.x) = halves[0] | high << 16;
        }
    }

    const TileSource& source_;
    std::uint32_t input_at_[Tile::kInputRows];  // pieces of 16 bytes: 64 GiB a matrix at most
    std::uint32_t quants_at_[kQuantRows];       // the same
    std::uint32_t scales_at_;                   // blocks
};

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
