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
/// up), so that a thread has both of an output. `kActiveMin`: the fewest 16-row fragments of a warp
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
    static constexpr std::uint32_t kDown = kWarpTokens / 16;  // fragments of a warp
    static constexpr std::uint32_t kAcross = kWarpOutputs / 8;

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
    static_assert(kWarpTokens % 16 == 0 && kWarpOutputs % 16 == 0);
    static_assert(kTokens * kInputChunks % kThreads == 0);
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
                   fragment % half * 8;
        } else {
            return warp_across * Tile::kWarpOutputs + fragment * 8;
        }
    }
};

template <class Tile>
using TileSums = float[Tile::kDown][Tile::kAcross][4];

template <class Tile>
__device__ __forceinline__ void fetch_inputs(const TileSource& source,
                                             const std::int32_t (&rows)[Tile::kInputRows],
                                             std::uint32_t step, unsigned char* to) {
    const std::uint32_t chunk = threadIdx.x % Tile::kInputChunks;
    const std::uint32_t row_first = threadIdx.x / Tile::kInputChunks;
    constexpr std::uint32_t kRowStep = Tile::kThreads / Tile::kInputChunks;
    constexpr std::uint32_t kElementBytes = Tile::kIsF32 ? 4 : 2;
    const std::uint32_t column = Tile::kIsF32
                                     ? step * kStepElements + 4 * chunk
                                     : step / Tile::kSteps * (Tile::kSteps * kStepElements) +
                                           Tile::Format::input_column(step % Tile::kSteps, chunk);
    const auto* input = static_cast<const unsigned char*>(source.input);
#pragma unroll
    for (std::uint32_t i = 0; i < Tile::kInputRows; ++i) {
        const std::uint32_t row = row_first + i * kRowStep;
        // Four chunks of four floats are a thread's of the product: thread c reads chunk j of its
        // four at 4j + c, where eight lanes of two rows meet all banks once.
        const std::uint32_t position = Tile::kIsF32 ? (4 * (chunk % 4) + chunk / 4) ^ (row % 2 * 4)
                                                    : chunk_position(row, chunk);
        const bool valid = rows[i] >= 0 && column < source.n_in;
        const std::uint64_t at =
            valid ? static_cast<std::uint64_t>(rows[i]) * source.input_stride + column : 0;
        copy_async16(to + row * Tile::kInputPitch + 16 * position, input + at * kElementBytes,
                     valid);
    }
}

/// A tile's column as a row of one of the matrices.
template <class Tile>
struct TileColumn {
    std::uint32_t matrix;
    std::uint64_t row;
    bool valid;

    __device__ TileColumn(const TileSource& source, std::uint32_t column) {
        constexpr std::uint32_t kHalf = Tile::kPaired ? Tile::kOutputs / 2 : Tile::kOutputs;
        matrix = Tile::kPaired ? column / kHalf : 0;
        row = source.row_first + column % kHalf;
        valid = row < source.row_end;
        if (!valid) row = source.row_first;
    }
};

/// float16 scales of two blocks, 4 bytes a row. With an odd number of blocks a row they are not
/// aligned to 4, and are copied by hand.
template <class Tile>
__device__ __forceinline__ void fetch_half_scales(const TileSource& source, std::uint32_t span,
                                                  unsigned char* to) {
    const std::uint32_t blocks = source.n_in / WeightBlock<Tile::kType>::kElements;
    const std::uint32_t block = Tile::kSteps == 1 ? 2 * span : span / 2 * 2;
    for (std::uint32_t row = threadIdx.x; row < Tile::kOutputs; row += Tile::kThreads) {
        const TileColumn<Tile> column(source, row);
        const unsigned char* from =
            source.weights[column.matrix].scales + (column.row * blocks + block) * 2;
        if (blocks % 2 == 0) {
            copy_async<4>(to + 4 * row, from, column.valid);
        } else {
            const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
            const std::uint32_t low = column.valid ? halves[0] : 0u;
            const std::uint32_t high = column.valid && block + 1 < blocks ? halves[1] : 0u;
            *reinterpret_cast<std::uint32_t*>(to + 4 * row) = low | high << 16;
        }
    }
}

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

template <class Tile>
__device__ __forceinline__ void fetch_weights(const TileSource& source, std::uint32_t span,
                                              unsigned char* to) {
    using Format = typename Tile::Format;
    using Block = WeightBlock<Tile::kType>;
    constexpr bool kNarrowed = Tile::kType == WeightType::f32 || Tile::kType == WeightType::bf16;
    constexpr std::uint32_t kChunks = Format::kQuantsBytes / 16;
    constexpr std::uint32_t kChunkBytes = kNarrowed ? 8 * Block::kQuantsBytes : 16;  // in device memory
    const std::uint32_t row_bytes = source.n_in / Block::kElements * Block::kQuantsBytes;
    const std::uint32_t chunk = threadIdx.x % kChunks;
    const std::uint32_t in_row = (span * kChunks + chunk) * kChunkBytes;
#pragma unroll
    for (std::uint32_t i = 0; i < Tile::kOutputs * kChunks / Tile::kThreads; ++i) {
        const std::uint32_t row = threadIdx.x / kChunks + i * (Tile::kThreads / kChunks);
        const TileColumn<Tile> column(source, row);
        const bool valid = column.valid && in_row < row_bytes;
        const unsigned char* from =
            source.weights[column.matrix].quants + column.row * row_bytes + (valid ? in_row : 0);
        const std::uint32_t position = Format::kSwapped ? chunk_position(row, chunk) : chunk;
        unsigned char* destination = to + row * Format::kQuantsPitch + 16 * position;
        if constexpr (kNarrowed)
            *reinterpret_cast<uint4*>(destination) =
                valid ? narrow_eight<Tile::kType>(from) : make_uint4(0, 0, 0, 0);
        else
            copy_async16(destination, from, valid);
    }
    if constexpr (Format::kScalesBytes == 4)
        fetch_half_scales<Tile>(source, span, to + Tile::kScalesAt);
    if constexpr (Format::kScalesBytes == 16) {
        const std::uint32_t blocks = source.n_in / Block::kElements;
        for (std::uint32_t row = threadIdx.x; row < Tile::kOutputs; row += Tile::kThreads) {
            const TileColumn<Tile> column(source, row);
            const WeightPlanes& planes = source.weights[column.matrix];
            const std::uint64_t block = column.row * blocks + span;
            copy_async16(to + Tile::kScalesAt + 16 * row, planes.scales + 16 * block, column.valid);
            if constexpr (Format::kTailBytes == 4)
                copy_async<4>(to + Tile::kTailAt + 4 * row, planes.tail + 4 * block, column.valid);
        }
    }
}

/// A thread's inputs of a step: of the rows g and g + 8 of each fragment, 16 halves in a row; from
/// float32 as the sum of two halves, about 22 bits.
template <class Tile, std::uint32_t kActive>
struct InputFragments {
    std::uint32_t high[kActive][2][8];
    std::uint32_t low[Tile::kIsF32 ? kActive : 1][2][8];

    __device__ __forceinline__ void load(const unsigned char* inputs,
                                         const TilePlace<Tile>& place) {
#pragma unroll
        for (std::uint32_t m = 0; m < kActive; ++m)
#pragma unroll
            for (std::uint32_t h = 0; h < 2; ++h) {
                const unsigned char* row =
                    inputs + (place.token_first + 16 * m + 8 * h + place.g) * Tile::kInputPitch;
                if constexpr (Tile::kIsF32)
                    split(row, place, high[m][h], low[m][h]);
                else
                    load_sixteen(row, place.g, place.c, high[m][h]);
            }
    }
    __device__ static __forceinline__ void split(const unsigned char* row,
                                                 const TilePlace<Tile>& place,
                                                 std::uint32_t (&out_high)[8],
                                                 std::uint32_t (&out_low)[8]) {
#pragma unroll
        for (std::uint32_t j = 0; j < 4; ++j) {
            const std::uint32_t position = (4 * j + place.c) ^ (place.g % 2 * 4);
            const auto x = shared_value<float4>(row + 16 * position);
            split_pair(x.x, x.y, out_high[2 * j], out_low[2 * j]);
            split_pair(x.z, x.w, out_high[2 * j + 1], out_low[2 * j + 1]);
        }
    }
    __device__ static __forceinline__ void split_pair(float a, float b, std::uint32_t& out_high,
                                                      std::uint32_t& out_low) {
        const __half2 rounded = __floats2half2_rn(saturate_f16(a), saturate_f16(b));
        const float2 wide = __half22float2(rounded);
        out_high = bits_of(rounded);
        out_low = bits_of(__floats2half2_rn(saturate_f16(a - wide.x), saturate_f16(b - wide.y)));
    }
};

template <class Tile, std::uint32_t kActive>
__device__ __forceinline__ void multiply_step(const unsigned char* inputs, const TilePlanes& planes,
                                              const TilePlace<Tile>& place, std::uint32_t step,
                                              TileSums<Tile>& sums) {
    InputFragments<Tile, kActive> a;
    a.load(inputs, place);
#pragma unroll
    for (std::uint32_t f = 0; f < Tile::kAcross; ++f) {
        WeightFragment w;
        Tile::Format::decode(planes, place.column(f) + place.g, place.c, step % Tile::kSteps,
                             step / Tile::kSteps, w);
#pragma unroll
        for (std::uint32_t s = 0; s < 4; ++s) {
            const std::uint32_t b[2] = {w[2 * s], w[2 * s + 1]};
#pragma unroll
            for (std::uint32_t m = 0; m < kActive; ++m) {
                const std::uint32_t high[4] = {a.high[m][0][2 * s], a.high[m][1][2 * s],
                                               a.high[m][0][2 * s + 1], a.high[m][1][2 * s + 1]};
                mma_f16(sums[m][f], high, b);
                if constexpr (Tile::kIsF32) {
                    const std::uint32_t low[4] = {a.low[m][0][2 * s], a.low[m][1][2 * s],
                                                  a.low[m][0][2 * s + 1], a.low[m][1][2 * s + 1]};
                    mma_f16(sums[m][f], low, b);
                }
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

/// sums = inputs . weights. `input_row(r)` gives the row of the input that is row r of the tile, or
/// -1; rows from `n_rows` on have none.
template <class Tile, class InputRow>
__device__ __forceinline__ void multiply_tile(const TileSource& source, std::uint32_t n_rows,
                                              const InputRow& input_row, TileSums<Tile>& sums) {
    unsigned char* shared = dynamic_shared();
    const TilePlace<Tile> place;
    std::int32_t rows[Tile::kInputRows];
#pragma unroll
    for (std::uint32_t i = 0; i < Tile::kInputRows; ++i) {
        const std::uint32_t row =
            threadIdx.x / Tile::kInputChunks + i * (Tile::kThreads / Tile::kInputChunks);
        rows[i] = row < n_rows ? input_row(row) : -1;
    }
    auto* grid = reinterpret_cast<std::uint64_t*>(shared + Tile::kGridAt);
    if constexpr (Tile::kType == WeightType::iq2_xxs)
        for (std::uint32_t i = threadIdx.x; i < 256; i += Tile::kThreads)
            grid[i] = kIq2Grid.rows[i];
#pragma unroll
    for (std::uint32_t m = 0; m < Tile::kDown; ++m)
#pragma unroll
        for (std::uint32_t f = 0; f < Tile::kAcross; ++f)
#pragma unroll
            for (std::uint32_t i = 0; i < 4; ++i) sums[m][f][i] = 0.0f;

    constexpr std::uint32_t kSpan = Tile::kSteps * kStepElements;
    const std::uint32_t n_steps = (source.n_in + kSpan - 1) / kSpan * Tile::kSteps;
    const auto slot = [&](std::uint32_t step) {
        return shared + Tile::kSlotsAt + step / Tile::kSteps % Tile::kSlots * Tile::kSlotBytes;
    };
    const auto fetch = [&](std::uint32_t step) {
        if (step < n_steps) {
            fetch_inputs<Tile>(source, rows, step,
                               shared + step % Tile::kStages * Tile::kInputBytes);
            if (step % Tile::kSteps == 0)
                fetch_weights<Tile>(source, step / Tile::kSteps, slot(step));
        }
        commit_copies();
    };
    const std::uint32_t warp_rows = n_rows > place.token_first ? n_rows - place.token_first : 0;
    const std::uint32_t active = min((warp_rows + 15) / 16, Tile::kDown);
    for (std::uint32_t step = 0; step + 1 < Tile::kStages; ++step) fetch(step);
    for (std::uint32_t step = 0; step < n_steps; ++step) {
        wait_for_copies<Tile::kStages - 2>();
        __syncthreads();  // also: all have finished the step whose buffers are filled next
        fetch(step + Tile::kStages - 1);
        const unsigned char* from = slot(step);
        if (active > 0)
            multiply_active<Tile, Tile::kDown>(
                active, shared + step % Tile::kStages * Tile::kInputBytes,
                {from, from + Tile::kScalesAt, from + Tile::kTailAt, grid}, place, step, sums);
    }
}

}  // namespace plimsoll::kernels::cuda
