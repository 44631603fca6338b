#pragma once

// Weights as float32, bit for bit those of the CPU's dequantize_f32: products and differences are
// rounded one by one.

#include "kernels/cuda/decode_weights.cuh"

namespace plimsoll::kernels::cuda {

__device__ __forceinline__ float half_at(const unsigned char* from) {
    return __half2float(*reinterpret_cast<const __half*>(from));
}

/// scale * q - min of eight bytes, after a shift and a mask.
__device__ __forceinline__ void scale_eight(const unsigned char* bytes, std::uint32_t shift,
                                            std::uint32_t mask, float scale, float min,
                                            float (&out)[8]) {
    const auto words = *reinterpret_cast<const uint2*>(bytes);
    const std::uint32_t low = (words.x >> shift) & mask;
    const std::uint32_t high = (words.y >> shift) & mask;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
        out[i] = __fsub_rn(__fmul_rn(scale, static_cast<float>((low >> (8 * i)) & 255u)), min);
        out[4 + i] = __fsub_rn(__fmul_rn(scale, static_cast<float>((high >> (8 * i)) & 255u)), min);
    }
}

/// Elements e..e+7 of a block of 256 whose index in the whole matrix is `block`.
template <WeightType kType>
__device__ __forceinline__ void decode_block_eight(const WeightPlanes& planes, std::uint64_t block,
                                                   std::uint32_t e, float (&out)[8]) {
    if constexpr (kType == WeightType::q2_k) {
        const std::uint32_t packed = planes.scales[block * 16 + e / 16];
        const unsigned char* tail = planes.tail + block * 4;
        scale_eight(planes.quants + block * 64 + e / 128 * 32 + e % 32, e % 128 / 32 * 2,
                    0x03030303u, __fmul_rn(half_at(tail), static_cast<float>(packed & 15u)),
                    __fmul_rn(half_at(tail + 2), static_cast<float>(packed >> 4)), out);
    } else if constexpr (kType == WeightType::q4_k) {
        const unsigned char* head = planes.scales + block * 16;
        const unsigned char* s = head + 4;
        const std::uint32_t j = e / 32;
        const std::uint32_t scale = j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (s[j - 4] >> 6) << 4;
        const std::uint32_t min = j < 4 ? s[j + 4] & 63u : s[j + 4] >> 4 | (s[j] >> 6) << 4;
        scale_eight(planes.quants + block * 128 + e / 64 * 32 + e % 32, 4 * (j % 2), 0x0f0f0f0fu,
                    __fmul_rn(half_at(head), static_cast<float>(scale)),
                    __fmul_rn(half_at(head + 2), static_cast<float>(min)), out);
    } else {
        static_assert(kType == WeightType::iq2_xxs);
        const auto codes = *reinterpret_cast<const uint2*>(planes.quants + block * 64 + e / 32 * 8);
        const std::uint32_t l = e % 32 / 8;
        const std::uint64_t magnitudes = kIq2Grid.rows[(codes.x >> (8 * l)) & 255u];
        const std::uint32_t signs = iq2_signs((codes.y >> (7 * l)) & 127u);
        const float scale = __fmul_rn(__fmul_rn(half_at(planes.scales + block * 2), 0.125f),
                                      static_cast<float>(2 * (codes.y >> 28) + 1));
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) {
            const auto magnitude = static_cast<float>((magnitudes >> (8 * i)) & 255u);
            out[i] = __fmul_rn(scale, (signs >> i) & 1u ? -magnitude : magnitude);
        }
    }
}

/// Weights k..k+7 of a row; k a multiple of 8.
template <WeightType kType>
__device__ __forceinline__ void decode_eight_f32(const WeightPlanes& planes, std::uint64_t row,
                                                 std::uint32_t n_in, std::uint32_t k,
                                                 float (&out)[8]) {
    const std::uint64_t element = row * n_in + k;
    if constexpr (kType == WeightType::f32) {
        const auto* from = reinterpret_cast<const float4*>(planes.quants + element * 4);
        const float4 low = from[0];
        const float4 high = from[1];
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    } else if constexpr (kType == WeightType::f16 || kType == WeightType::bf16) {
        const auto words = *reinterpret_cast<const uint4*>(planes.quants + element * 2);
        const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            if constexpr (kType == WeightType::f16) {
                const float2 wide = __half22float2(half2_of(pairs[i]));
                out[2 * i] = wide.x, out[2 * i + 1] = wide.y;
            } else {
                out[2 * i] = __uint_as_float(pairs[i] << 16);
                out[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
            }
        }
    } else if constexpr (kType == WeightType::q8_0) {
        const auto words = *reinterpret_cast<const uint2*>(planes.quants + element);
        const float d = half_at(planes.scales + element / 32 * 2);
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) {
            const std::uint32_t word = i < 4 ? words.x : words.y;
            out[i] = __fmul_rn(
                d, static_cast<float>(static_cast<std::int8_t>((word >> (8 * (i % 4))) & 255u)));
        }
    } else {
        decode_block_eight<kType>(planes, element / 256, k % 256, out);
    }
}

}  // namespace plimsoll::kernels::cuda
