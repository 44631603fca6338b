#pragma once

// Dots of one activation row with weight rows, the way decode does them: the row lies in shared
// memory as 16-bit blocks (kernels/types.hpp), split into a plane of high and one of low bytes, so
// that four weights cost two byte dots; sums of integers are exact. Floating-point weights meet the
// row in float32 (dot_formats.cuh).
//
// Weights are read in pieces of 16 bytes of the quants plane, consecutive lanes consecutive pieces.
// A piece meets kParts parts of 16 activations (of 4 with floating-point weights), and part p of
// piece i lies at [p][i] in shared memory: the lanes of a warp read consecutive 16 bytes there too,
// and no two of them the same bank.

#include "kernels/cuda/decode_weights.cuh"
#include "kernels/cuda/iq2_selectors.cuh"

namespace plimsoll::kernels::cuda {

/// One activation row in shared memory, as a format reads it.
struct SharedRow {
    const uint4* high;       // [parts][pieces] 16 signed bytes
    const uint4* low;        // [parts][pieces] 16 unsigned bytes
    const float* scale;      // of 32 or 256 activations
    const void* sum;         // of each 16 activations, as formats with mins have it
    const float4* values;    // [parts][pieces], floating-point weights
    std::uint32_t n_pieces;  // of a weight row
};

/// Place of 16 (or 4) activations: the piece that meets them, and as which part.
struct Place {
    std::uint32_t piece;
    std::uint32_t part;
};

/// Half `half` of a word.
__device__ __forceinline__ float half_of_word(std::uint32_t word, std::uint32_t half) {
    const auto bits = static_cast<unsigned short>(half != 0 ? word >> 16 : word);
    __half value;
    memcpy(&value, &bits, sizeof(value));
    return __half2float(value);
}

/// A lane's own place in a unit of the ring: 16 bytes of quants, then what goes with them.
template <class T>
__device__ __forceinline__ T* lane_slot(unsigned char* slot, std::uint32_t offset_bytes) {
    return reinterpret_cast<T*>(slot + offset_bytes) + threadIdx.x % kWarp;
}
inline constexpr std::uint32_t kSideBytes = 16 * kWarp;  // where that begins

/// Sums of the products of 16 weight bytes with the high and the low bytes.
struct ByteDots {
    std::int32_t high;
    std::int32_t low;
};
__device__ __forceinline__ ByteDots dot16(const uint4& w, const uint4& high, const uint4& low) {
    ByteDots dots;
    dots.high = dot4(w.w, high.w, dot4(w.z, high.z, dot4(w.y, high.y, dot4(w.x, high.x, 0))));
    dots.low = dot4_signed_unsigned(
        w.w, low.w,
        dot4_signed_unsigned(
            w.z, low.z, dot4_signed_unsigned(w.y, low.y, dot4_signed_unsigned(w.x, low.x, 0))));
    return dots;
}

/// What a format says:
///   kBand      weight rows a warp takes at a time: they share the reads of the activations
///   kSteps     pieces a lane has in flight of each of these rows
///   kScaleBytes, kTailBytes   of the other planes, by 256 bytes of quants
///   kPiece     elements of a piece;   kScaleElements: activations under one scale (0: float32)
///   place(e)   of activation e, a multiple of 16 (or 4)
///   kRingBytes a lane's share of a row's unit in the ring
///   copy       piece `piece` of the whole matrix from device memory to the ring, asynchronously
///   take       it from there
///   put_sum    stores a sum of 16 activations; formats with mins
///   dot        acc[r] += piece[r] . activations
template <WeightType kType>
struct DotFormat;

template <>
struct DotFormat<WeightType::q8_0> {
    static constexpr std::uint32_t kBand = 4, kSteps = 2, kPiece = 16, kParts = 1;
    static constexpr std::uint32_t kScaleElements = 32;
    static constexpr std::uint32_t kScaleBytes = 16, kTailBytes = 0;
    static constexpr bool kMins = false, kIq2 = false;
    struct Piece {
        uint4 quants;
        float d;
    };

    __device__ static Place place(std::uint32_t e) { return {e / 16, 0}; }
    static constexpr std::uint32_t kRingBytes = 16 + 4;
    __device__ static void copy(unsigned char* slot, const WeightPlanes& planes,
                                std::uint64_t piece) {
        copy_async16(lane_slot<uint4>(slot, 0), planes.quants + 16 * piece);
        copy_async<4>(lane_slot<std::uint32_t>(slot, kSideBytes), planes.scales + piece / 4 * 4);
    }
    __device__ static Piece take(unsigned char* slot, std::uint32_t piece) {
        return {*lane_slot<uint4>(slot, 0),
                half_of_word(*lane_slot<std::uint32_t>(slot, kSideBytes), piece / 2 % 2)};
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        const uint4 high = x.high[piece], low = x.low[piece];
        const float d = x.scale[piece / 2];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const ByteDots dots = dot16(w[r].quants, high, low);
            acc[r] += w[r].d * d * static_cast<float>(256 * dots.high + dots.low);
        }
    }
};

template <>
struct DotFormat<WeightType::q2_k> {
    static constexpr std::uint32_t kBand = 4, kSteps = 1, kPiece = 64, kParts = 4;
    static constexpr std::uint32_t kScaleElements = 256;
    static constexpr std::uint32_t kScaleBytes = 64, kTailBytes = 16;
    static constexpr bool kMins = true, kIq2 = false;
    struct Piece {
        uint4 quants;
        uint2 scales;  // of the half block: 2k + piece % 2 belongs to part k
        std::uint32_t d_dmin;
    };

    /// Bits 2k of byte l of half h are element 128h + 32k + l.
    __device__ static Place place(std::uint32_t e) {
        return {e / 256 * 4 + e % 256 / 128 * 2 + e % 32 / 16, e % 128 / 32};
    }
    /// Bytes 0, 1 and 2 of a piece's four sums, a word each: so that its four mins meet them in
    /// three byte dots. A sum has 20 bits.
    __device__ static void put_sum(unsigned char* sums, const Place& place, std::uint32_t,
                                   std::int32_t sum) {
        unsigned char* to = sums + 16 * place.piece + place.part;
        to[0] = static_cast<unsigned char>(sum);
        to[4] = static_cast<unsigned char>(sum >> 8);
        to[8] = static_cast<unsigned char>(sum >> 16);
    }
    static constexpr std::uint32_t kRingBytes = 16 + 8 + 4;
    static constexpr std::uint32_t kTailAt = kSideBytes + 8 * kWarp;
    __device__ static void copy(unsigned char* slot, const WeightPlanes& planes,
                                std::uint64_t piece) {
        copy_async16(lane_slot<uint4>(slot, 0), planes.quants + 16 * piece);
        copy_async<8>(lane_slot<uint2>(slot, kSideBytes), planes.scales + piece / 2 * 8);
        copy_async<4>(lane_slot<std::uint32_t>(slot, kTailAt), planes.tail + piece / 4 * 4);
    }
    __device__ static Piece take(unsigned char* slot, std::uint32_t) {
        return {*lane_slot<uint4>(slot, 0), *lane_slot<uint2>(slot, kSideBytes),
                *lane_slot<std::uint32_t>(slot, kTailAt)};
    }
    /// Part k's fields where they stand, that is times 4^k; the last ones moved down by two bits,
    /// since the highest bit would be a sign.
    template <std::uint32_t kPart>
    __device__ static std::uint32_t fields(std::uint32_t quants) {
        return kPart == 3 ? (quants >> 2) & 0x30303030u : quants & (0x03030303u << 2 * kPart);
    }
    template <std::uint32_t kPart>
    __device__ static void add_part(const Piece (&w)[kBand], const std::uint32_t (&scales)[kBand],
                                    const SharedRow& x, std::uint32_t piece,
                                    std::int32_t (&dots)[kBand]) {
        constexpr std::uint32_t kShift = kPart == 3 ? 4 : 2 * kPart;  // of the fields
        const uint4 high = x.high[kPart * x.n_pieces + piece];
        const uint4 low = x.low[kPart * x.n_pieces + piece];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const uint4& q = w[r].quants;
            const ByteDots part = dot16(
                {fields<kPart>(q.x), fields<kPart>(q.y), fields<kPart>(q.z), fields<kPart>(q.w)},
                high, low);
            // With a scale of 4 bits times 16 / 2^kShift all parts count 16-fold: no more than 16 *
            // 64 * 3 * 15 * 32767 < 2^31.
            const std::uint32_t scale =
                kPart == 0 ? (scales[r] << 4) & 0xf0u
                           : (scales[r] >> (8 * kPart - 4 + kShift)) & (15u << (4 - kShift));
            dots[r] += static_cast<std::int32_t>(scale) * (256 * part.high + part.low);
        }
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        const std::uint32_t own = piece % 2 != 0 ? 0x7531 : 0x6420;
        std::uint32_t scales[kBand];  // byte k: scale and min of part k
        std::int32_t dots[kBand] = {};
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r)
            scales[r] = __byte_perm(w[r].scales.x, w[r].scales.y, own);
        add_part<0>(w, scales, x, piece, dots);
        add_part<1>(w, scales, x, piece, dots);
        add_part<2>(w, scales, x, piece, dots);
        add_part<3>(w, scales, x, piece, dots);
        const uint4 sums = static_cast<const uint4*>(x.sum)[piece];
        const float d = x.scale[piece / 4];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const std::uint32_t mins = (scales[r] >> 4) & 0x0f0f0f0fu;
            const std::int32_t min = 65536 * dot4(mins, sums.z, 0) +
                                     256 * dot4_signed_unsigned(mins, sums.y, 0) +
                                     dot4_signed_unsigned(mins, sums.x, 0);
            const float2 weight_d = __half22float2(half2_of(w[r].d_dmin));
            acc[r] += weight_d.x * d * (0.0625f * static_cast<float>(dots[r])) -
                      weight_d.y * d * static_cast<float>(min);
        }
    }
};

template <>
struct DotFormat<WeightType::q4_k> {
    static constexpr std::uint32_t kBand = 4, kSteps = 1, kPiece = 32, kParts = 2;
    static constexpr std::uint32_t kScaleElements = 256;
    static constexpr std::uint32_t kScaleBytes = 32, kTailBytes = 0;
    static constexpr bool kMins = true, kIq2 = false;
    struct Piece {
        uint4 quants;
        uint4 head;  // d, dmin, then 12 bytes of 6-bit scales and mins
    };
    struct ScaleAndMin {
        std::int32_t scale;
        std::int32_t min;
    };

    /// The low (n = 0) or high half of byte l of group g is element 64g + 32n + l.
    __device__ static Place place(std::uint32_t e) {
        return {e / 64 * 2 + e % 32 / 16, e % 64 / 32};
    }
    __device__ static void put_sum(unsigned char* sums, const Place& place, std::uint32_t n_pieces,
                                   std::int32_t sum) {
        reinterpret_cast<std::int32_t*>(sums)[place.part * n_pieces + place.piece] = sum;
    }
    static constexpr std::uint32_t kRingBytes = 16 + 16;
    __device__ static void copy(unsigned char* slot, const WeightPlanes& planes,
                                std::uint64_t piece) {
        copy_async16(lane_slot<uint4>(slot, 0), planes.quants + 16 * piece);
        copy_async16(lane_slot<uint4>(slot, kSideBytes), planes.scales + piece / 8 * 16);
    }
    __device__ static Piece take(unsigned char* slot, std::uint32_t) {
        return {*lane_slot<uint4>(slot, 0), *lane_slot<uint4>(slot, kSideBytes)};
    }
    /// Of the 32 elements with number j in the block.
    __device__ static ScaleAndMin scale_and_min_of(const uint4& head, std::uint32_t j) {
        const std::uint32_t shift = j % 4 * 8;
        const std::uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
        const bool first_half = j < 4;
        const std::uint32_t scale = first_half ? a & 63u : (c & 15u) | ((a >> 2) & 48u);
        const std::uint32_t min = first_half ? b & 63u : ((c >> 4) & 15u) | ((b >> 2) & 48u);
        return {static_cast<std::int32_t>(scale), static_cast<std::int32_t>(min)};
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        std::int32_t dots[kBand] = {}, mins[kBand] = {};
#pragma unroll
        for (std::uint32_t n = 0; n < kParts; ++n) {
            const uint4 high = x.high[n * x.n_pieces + piece];
            const uint4 low = x.low[n * x.n_pieces + piece];
            const std::int32_t sum =
                static_cast<const std::int32_t*>(x.sum)[n * x.n_pieces + piece];
#pragma unroll
            for (std::uint32_t r = 0; r < kBand; ++r) {
                const uint4& q = w[r].quants;
                const uint4 fields = {(q.x >> 4 * n) & 0x0f0f0f0fu, (q.y >> 4 * n) & 0x0f0f0f0fu,
                                      (q.z >> 4 * n) & 0x0f0f0f0fu, (q.w >> 4 * n) & 0x0f0f0f0fu};
                const ScaleAndMin by = scale_and_min_of(w[r].head, piece % 8 / 2 * 2 + n);
                const ByteDots part = dot16(fields, high, low);
                dots[r] += by.scale * (256 * part.high + part.low);
                mins[r] += by.min * sum;
            }
        }
        const float d = x.scale[piece / 8];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const float2 weight_d = __half22float2(half2_of(w[r].head.x));
            acc[r] += weight_d.x * d * static_cast<float>(dots[r]) -
                      weight_d.y * d * static_cast<float>(mins[r]);
        }
    }
};

template <>
struct DotFormat<WeightType::iq2_xxs> {
    // One step: half the code in the stream's loop, which two unroll. On an H200 a launch of gate
    // and up takes 23.5 instead of 24.0 us by itself, and a token of 43 of them in a graph 0.10 of
    // 5.93 ms less; most likely by the instruction cache.
    static constexpr std::uint32_t kBand = 4, kSteps = 1, kPiece = 64, kParts = 4;
    static constexpr std::uint32_t kScaleElements = 256;
    static constexpr std::uint32_t kScaleBytes = 8, kTailBytes = 0;
    static constexpr bool kMins = false, kIq2 = true;
    struct Piece {
        uint4 codes;  // twice: four grid rows, four signs of 7 bits and a scale
        float d;
    };

    __device__ static Place place(std::uint32_t e) { return {e / 64, e % 64 / 16}; }
    static constexpr std::uint32_t kRingBytes = 16 + 4;
    __device__ static void copy(unsigned char* slot, const WeightPlanes& planes,
                                std::uint64_t piece) {
        copy_async16(lane_slot<uint4>(slot, 0), planes.quants + 16 * piece);
        copy_async<4>(lane_slot<std::uint32_t>(slot, kSideBytes), planes.scales + piece / 8 * 4);
    }
    __device__ static Piece take(unsigned char* slot, std::uint32_t piece) {
        return {*lane_slot<uint4>(slot, 0),
                half_of_word(*lane_slot<std::uint32_t>(slot, kSideBytes), piece / 4 % 2)};
    }
    /// What is the same for all pieces of a lane.
    struct Lane {
        std::uint32_t magnitudes, signs;  // offsets in a table's row
        std::uint32_t positive;
    };
    /// The entry of this lane in the row that byte kByte of `codes` names; `column` is the entry's
    /// offset in the row, below 256.
    template <std::uint32_t kByte>
    __device__ static std::uint32_t entry(std::uint32_t codes, std::uint32_t column) {
        const std::uint32_t offset = __byte_perm(codes, column, 0x5504 | kByte << 4);
        return *reinterpret_cast<const std::uint32_t*>(dynamic_shared() + offset);
    }
    /// 16 weights: numbers 2 * kHalf and 2 * kHalf + 1 of a group's four rows.
    template <std::uint32_t kHalf>
    __device__ static uint4 weights(std::uint32_t rows, std::uint32_t signs, const Lane& lane) {
        const std::uint32_t first =
            entry<2 * kHalf>(rows, lane.magnitudes) + entry<0>(signs >> 14 * kHalf, lane.signs);
        const std::uint32_t second = entry<2 * kHalf + 1>(rows, lane.magnitudes) +
                                     entry<0>(signs >> (14 * kHalf + 7), lane.signs);
        return {permute_bytes(lane.positive, kIq2Negative, first),
                permute_bytes(lane.positive, kIq2Negative, first >> 16),
                permute_bytes(lane.positive, kIq2Negative, second),
                permute_bytes(lane.positive, kIq2Negative, second >> 16)};
    }
    /// Part p of the piece: half of one of its two groups.
    template <std::uint32_t kPart>
    __device__ static void add_part(const Piece (&w)[kBand], const SharedRow& x,
                                    std::uint32_t piece, const Lane& lane,
                                    ByteDots (&sums)[kBand]) {
        const uint4 high = x.high[kPart * x.n_pieces + piece];
        const uint4 low = x.low[kPart * x.n_pieces + piece];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const uint4& codes = w[r].codes;
            const std::uint32_t signs = kPart < 2 ? codes.y : codes.w;
            const ByteDots part =
                dot16(weights<kPart % 2>(kPart < 2 ? codes.x : codes.z, signs, lane), high, low);
            const auto scale = static_cast<std::int32_t>(2 * (signs >> 28) + 1);
            sums[r].high += scale * part.high;
            sums[r].low += scale * part.low;
        }
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        // A sum of 64 products with scales up to 31 may pass 2^31 only where high and low bytes are
        // joined.
        ByteDots sums[kBand] = {};
        const std::uint32_t column = threadIdx.x % kWarp * 4;
        // No piece has the highest bit. A value known to be the same everywhere would be copied
        // from a uniform register before each use, a twelfth of all instructions.
        const Lane lane{column, column + 128, kIq2Positive | (piece >> 31)};
        add_part<0>(w, x, piece, lane, sums);
        add_part<1>(w, x, piece, lane, sums);
        add_part<2>(w, x, piece, lane, sums);
        add_part<3>(w, x, piece, lane, sums);
        const float d = x.scale[piece / 4] * 0.125f;
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r)
            acc[r] += w[r].d * d *
                      (256.0f * static_cast<float>(sums[r].high) + static_cast<float>(sums[r].low));
    }
};

}  // namespace plimsoll::kernels::cuda
