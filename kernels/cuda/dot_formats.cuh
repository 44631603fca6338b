#pragma once

// The formats of floating-point weights, as dot_q16.cuh has the others, and the choice among all.

#include "kernels/cuda/dot_q16.cuh"

namespace plimsoll::kernels::cuda {

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
    static constexpr std::uint32_t kRingBytes = 16;
    __device__ static void copy(unsigned char* slot, const WeightPlanes& planes,
                                std::uint64_t piece) {
        copy_async16(lane_slot<uint4>(slot, 0), planes.quants + 16 * piece);
    }
    __device__ static Piece take(unsigned char* slot, std::uint32_t) {
        return {*lane_slot<uint4>(slot, 0)};
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
