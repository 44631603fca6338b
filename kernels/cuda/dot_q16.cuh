#pragma once

// Dots of one activation row with weight rows, the way decode does them: the row lies in shared
// memory as 16-bit blocks (kernels/types.hpp), split into a plane of high and one of low bytes, so
// that four weights cost two byte dots; sums of integers are exact. Floating-point weights meet the
// row in float32.
//
// Weights are read in pieces of 16 bytes of the quants plane, consecutive lanes consecutive pieces.
// A piece meets kParts parts of 16 activations (of 4 with floating-point weights), and part p of
// piece i lies at [p][i] in shared memory: the lanes of a warp read consecutive 16 bytes there too,
// and no two of them the same bank.

#include "kernels/cuda/decode_weights.cuh"
#include "kernels/cuda/iq2_grid.cuh"

namespace plimsoll::kernels::cuda {

/// Tables of IQ2_XXS in shared memory, each entry 32 times over: a lane reads its own column, so
/// that 32 random entries are one access without bank conflicts. An entry of 8 magnitudes is 8
/// selectors of 4 bits for a byte permutation of {8, 25, 43} and their negatives; signs are bit 2
/// of these.
struct Iq2Tables {
    std::uint32_t magnitudes[256][kWarp];
    std::uint32_t signs[128][kWarp];
};
inline constexpr std::uint32_t kIq2Positive = 0x002b1908;  // bytes 8, 25, 43
inline constexpr std::uint32_t kIq2Negative = 0x00d5e7f8;  // their negatives

__device__ inline void fill_iq2_tables(Iq2Tables& tables) {
    for (std::uint32_t i = threadIdx.x; i < 256 * kWarp; i += blockDim.x) {
        const std::uint64_t row = kIq2Grid.rows[i / kWarp];
        std::uint32_t selectors = 0;
        // The upper half of a magnitude's byte counts 0, 1, 2.
        for (std::uint32_t j = 0; j < 8; ++j)
            selectors |= static_cast<std::uint32_t>((row >> (8 * j + 4)) & 3u) << (4 * j);
        tables.magnitudes[i / kWarp][i % kWarp] = selectors;
    }
    for (std::uint32_t i = threadIdx.x; i < 128 * kWarp; i += blockDim.x) {
        const std::uint32_t mask = iq2_signs(i / kWarp);
        std::uint32_t bits = 0;
        for (std::uint32_t j = 0; j < 8; ++j) bits |= ((mask >> j) & 1u) << (4 * j + 2);
        tables.signs[i / kWarp][i % kWarp] = bits;
    }
}

/// One activation row in shared memory, as a format reads it.
struct SharedRow {
    const uint4* high;        // [parts][pieces] 16 signed bytes
    const uint4* low;         // [parts][pieces] 16 unsigned bytes
    const float* scale;       // of 32 or 256 activations
    const std::int32_t* sum;  // [parts][pieces] of 16 activations; formats with mins
    const float4* values;     // [parts][pieces], floating-point weights
    const Iq2Tables* iq2;     // IQ2_XXS
    std::uint32_t n_pieces;   // of a weight row
};

/// Place of 16 (or 4) activations: the piece that meets them, and as which part.
struct Place {
    std::uint32_t piece;
    std::uint32_t part;
};

__device__ __forceinline__ float scale_at(const unsigned char* from) {
    const unsigned short bits = __ldg(reinterpret_cast<const unsigned short*>(from));
    __half value;
    memcpy(&value, &bits, sizeof(value));
    return __half2float(value);
}

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
///   load       piece `piece` of the whole matrix, from device memory
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
    __device__ static Piece load(const WeightPlanes& planes, std::uint64_t piece) {
        return {load_once(planes.quants + 16 * piece), scale_at(planes.scales + piece / 2 * 2)};
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
    __device__ static Piece load(const WeightPlanes& planes, std::uint64_t piece) {
        return {load_once(planes.quants + 16 * piece),
                __ldg(reinterpret_cast<const uint2*>(planes.scales + piece / 2 * 8)),
                __ldg(reinterpret_cast<const std::uint32_t*>(planes.tail + piece / 4 * 4))};
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        std::int32_t dots[kBand] = {}, mins[kBand] = {};
        const std::uint32_t odd_shift = piece % 2 * 8;
#pragma unroll
        for (std::uint32_t k = 0; k < kParts; ++k) {
            const uint4 high = x.high[k * x.n_pieces + piece];
            const uint4 low = x.low[k * x.n_pieces + piece];
            const std::int32_t sum = x.sum[k * x.n_pieces + piece];
#pragma unroll
            for (std::uint32_t r = 0; r < kBand; ++r) {
                const uint4& q = w[r].quants;
                const uint4 fields = {(q.x >> 2 * k) & 0x03030303u, (q.y >> 2 * k) & 0x03030303u,
                                      (q.z >> 2 * k) & 0x03030303u, (q.w >> 2 * k) & 0x03030303u};
                const std::uint32_t word = k < 2 ? w[r].scales.x : w[r].scales.y;
                const std::uint32_t packed = word >> (odd_shift + k % 2 * 16);
                const ByteDots part = dot16(fields, high, low);
                dots[r] += static_cast<std::int32_t>(packed & 15u) * (256 * part.high + part.low);
                mins[r] += static_cast<std::int32_t>((packed >> 4) & 15u) * sum;
            }
        }
        const float d = x.scale[piece / 4];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const float2 weight_d = __half22float2(half2_of(w[r].d_dmin));
            acc[r] += weight_d.x * d * static_cast<float>(dots[r]) -
                      weight_d.y * d * static_cast<float>(mins[r]);
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
    __device__ static Piece load(const WeightPlanes& planes, std::uint64_t piece) {
        return {load_once(planes.quants + 16 * piece),
                __ldg(reinterpret_cast<const uint4*>(planes.scales + piece / 8 * 16))};
    }
    /// Of the 32 elements with number j in the block.
    __device__ static ScaleAndMin scale_and_min_of(const uint4& head, std::uint32_t j) {
        const std::uint32_t shift = j % 4 * 8;
        const std::uint32_t a = head.y >> shift, b = head.z >> shift, c = head.w >> shift;
        if (j < 4) return {static_cast<std::int32_t>(a & 63u), static_cast<std::int32_t>(b & 63u)};
        return {static_cast<std::int32_t>((c & 15u) | ((a >> 2) & 48u)),
                static_cast<std::int32_t>(((c >> 4) & 15u) | ((b >> 2) & 48u))};
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        std::int32_t dots[kBand] = {}, mins[kBand] = {};
#pragma unroll
        for (std::uint32_t n = 0; n < kParts; ++n) {
            const uint4 high = x.high[n * x.n_pieces + piece];
            const uint4 low = x.low[n * x.n_pieces + piece];
            const std::int32_t sum = x.sum[n * x.n_pieces + piece];
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
    static constexpr std::uint32_t kBand = 4, kSteps = 2, kPiece = 64, kParts = 4;
    static constexpr std::uint32_t kScaleElements = 256;
    static constexpr std::uint32_t kScaleBytes = 8, kTailBytes = 0;
    static constexpr bool kMins = false, kIq2 = true;
    struct Piece {
        uint4 codes;  // twice: four grid rows, four signs of 7 bits and a scale
        float d;
    };

    __device__ static Place place(std::uint32_t e) { return {e / 64, e % 64 / 16}; }
    __device__ static Piece load(const WeightPlanes& planes, std::uint64_t piece) {
        return {load_once(planes.quants + 16 * piece), scale_at(planes.scales + piece / 4 * 2)};
    }
    /// Selectors of 8 signed weights: number l of a group's four.
    __device__ static std::uint32_t selectors(const Iq2Tables& tables, std::uint32_t rows,
                                              std::uint32_t signs, std::uint32_t l) {
        const std::uint32_t lane = threadIdx.x % kWarp;
        return tables.magnitudes[(rows >> 8 * l) & 255u][lane] |
               tables.signs[(signs >> 7 * l) & 127u][lane];
    }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        // A sum of 64 products with scales up to 31 may pass 2^31 only where high and low bytes are
        // joined.
        std::int32_t high_sum[kBand] = {}, low_sum[kBand] = {};
#pragma unroll
        for (std::uint32_t p = 0; p < kParts; ++p) {
            const uint4 high = x.high[p * x.n_pieces + piece];
            const uint4 low = x.low[p * x.n_pieces + piece];
#pragma unroll
            for (std::uint32_t r = 0; r < kBand; ++r) {
                const std::uint32_t rows = p < 2 ? w[r].codes.x : w[r].codes.z;
                const std::uint32_t signs = p < 2 ? w[r].codes.y : w[r].codes.w;
                const std::uint32_t first = selectors(*x.iq2, rows, signs, p % 2 * 2);
                const std::uint32_t second = selectors(*x.iq2, rows, signs, p % 2 * 2 + 1);
                const uint4 weights = {__byte_perm(kIq2Positive, kIq2Negative, first),
                                       __byte_perm(kIq2Positive, kIq2Negative, first >> 16),
                                       __byte_perm(kIq2Positive, kIq2Negative, second),
                                       __byte_perm(kIq2Positive, kIq2Negative, second >> 16)};
                const ByteDots part = dot16(weights, high, low);
                const auto scale = static_cast<std::int32_t>(2 * (signs >> 28) + 1);
                high_sum[r] += scale * part.high;
                low_sum[r] += scale * part.low;
            }
        }
        const float d = x.scale[piece / 4] * 0.125f;
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r)
            acc[r] += w[r].d * d *
                      (256.0f * static_cast<float>(high_sum[r]) + static_cast<float>(low_sum[r]));
    }
};

/// Of the floating-point formats.
__device__ __forceinline__ float dot_values(float acc, const float4& w, const float4& x) {
    return fmaf(w.w, x.w, fmaf(w.z, x.z, fmaf(w.y, x.y, fmaf(w.x, x.x, acc))));
}
struct FloatFormat {
    static constexpr std::uint32_t kBand = 4, kSteps = 2;
    static constexpr std::uint32_t kScaleElements = 0;
    static constexpr std::uint32_t kScaleBytes = 0, kTailBytes = 0;
    static constexpr bool kMins = false, kIq2 = false;
    struct Piece {
        uint4 bits;
    };
    __device__ static Piece load(const WeightPlanes& planes, std::uint64_t piece) {
        return {load_once(planes.quants + 16 * piece)};
    }
};

template <>
struct DotFormat<WeightType::f32> : FloatFormat {
    static constexpr std::uint32_t kPiece = 4, kParts = 1;
    __device__ static Place place(std::uint32_t e) { return {e / 4, 0}; }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        const float4 values = x.values[piece];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const uint4& bits = w[r].bits;
            acc[r] = dot_values(acc[r],
                                {__uint_as_float(bits.x), __uint_as_float(bits.y),
                                 __uint_as_float(bits.z), __uint_as_float(bits.w)},
                                values);
        }
    }
};

/// Two values of 16 bits in a word.
struct F16Pair {
    __device__ static float2 values(std::uint32_t bits) { return __half22float2(half2_of(bits)); }
};
struct Bf16Pair {
    __device__ static float2 values(std::uint32_t bits) {
        return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
    }
};
template <class Pair>
struct HalfFormat : FloatFormat {
    static constexpr std::uint32_t kPiece = 8, kParts = 2;
    __device__ static Place place(std::uint32_t e) { return {e / 8, e % 8 / 4}; }
    __device__ static void dot(const Piece (&w)[kBand], const SharedRow& x, std::uint32_t piece,
                               float (&acc)[kBand]) {
        const float4 first = x.values[piece], second = x.values[x.n_pieces + piece];
#pragma unroll
        for (std::uint32_t r = 0; r < kBand; ++r) {
            const float2 a = Pair::values(w[r].bits.x), b = Pair::values(w[r].bits.y);
            const float2 c = Pair::values(w[r].bits.z), d = Pair::values(w[r].bits.w);
            acc[r] = dot_values(acc[r], {a.x, a.y, b.x, b.y}, first);
            acc[r] = dot_values(acc[r], {c.x, c.y, d.x, d.y}, second);
        }
    }
};
template <>
struct DotFormat<WeightType::f16> : HalfFormat<F16Pair> {};
template <>
struct DotFormat<WeightType::bf16> : HalfFormat<Bf16Pair> {};

/// Calls visit(DotFormat<type>{}): in device code, and in host code.
template <class Visit>
__device__ __forceinline__ void on_format(WeightType type, const Visit& visit) {
    switch (type) {
        case WeightType::f32: return visit(DotFormat<WeightType::f32>{});
        case WeightType::f16: return visit(DotFormat<WeightType::f16>{});
        case WeightType::bf16: return visit(DotFormat<WeightType::bf16>{});
        case WeightType::q8_0: return visit(DotFormat<WeightType::q8_0>{});
        case WeightType::q2_k: return visit(DotFormat<WeightType::q2_k>{});
        case WeightType::q4_k: return visit(DotFormat<WeightType::q4_k>{});
        case WeightType::iq2_xxs: return visit(DotFormat<WeightType::iq2_xxs>{});
    }
}
template <class Visit>
void with_format(WeightType type, const Visit& visit) {
    switch (type) {
        case WeightType::f32: return visit(DotFormat<WeightType::f32>{});
        case WeightType::f16: return visit(DotFormat<WeightType::f16>{});
        case WeightType::bf16: return visit(DotFormat<WeightType::bf16>{});
        case WeightType::q8_0: return visit(DotFormat<WeightType::q8_0>{});
        case WeightType::q2_k: return visit(DotFormat<WeightType::q2_k>{});
        case WeightType::q4_k: return visit(DotFormat<WeightType::q4_k>{});
        case WeightType::iq2_xxs: return visit(DotFormat<WeightType::iq2_xxs>{});
    }
}

}  // namespace plimsoll::kernels::cuda
