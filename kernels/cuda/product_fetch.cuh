#pragma once

// The tile of a fast product: its sizes, and how its inputs and weights come into shared memory.

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

}  // namespace plimsoll::kernels::cuda
