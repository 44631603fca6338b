#pragma once

// Dots with 16-bit integer inputs: Q8_0 with blocks of 32, Q2_K, Q4_K and IQ2_XXS with blocks of
// 256. Sums inside a block are exact integers. Included only by the leaf files.

#include "kernels/cpu/decode_impl.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// A block of 256 weights, each times the scale of its 16: w = d * q - dmin * min. |q| is at most
/// 43 * 31 (IQ2_XXS), so that a block's sum stays within 256 * 1333 * 32767 / 8 lanes < 2^31.
struct ScaledBlock {
    alignas(64) std::int16_t q[256];
    alignas(64) std::int32_t min[16];  // by 16 elements; only written by formats with kMins
    float d;
    float dmin;
};

#if defined(__AVX2__)

/// Eight lanes of partial sums of one dot.
using BlockSum = __m256;
inline BlockSum zero_block_sum() { return _mm256_setzero_ps(); }
inline float total(BlockSum a) {
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline BlockSum add_block_sums(BlockSum a, BlockSum b) { return _mm256_add_ps(a, b); }

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

template <class Format>
inline void scale_weights(const IntegerBlock& block, ScaledBlock& out) {
    for (std::uint32_t j = 0; j < 16; ++j) {
        __m256i q = _mm256_cvtepu8_epi16(load16(block.q + 16 * j));
        if constexpr (Format::kSigned)
            q = _mm256_sign_epi16(q, _mm256_cvtepi8_epi16(load16(block.sign + 16 * j)));
        q = _mm256_mullo_epi16(q, _mm256_set1_epi16(block.scale[j]));
        _mm256_store_si256(reinterpret_cast<__m256i*>(out.q + 16 * j), q);
    }
}

/// acc + a . b, 16-bit lanes summed by two into 32-bit lanes.
inline __m256i add_products16(__m256i acc, __m256i a, __m256i b) {
#if defined(__AVX512VNNI__)
    return _mm256_dpwssd_epi32(acc, a, b);
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#endif
}

/// sum + d * (integer dot) - dmin * (mins . sums), for one block of 256. Two chains of additions,
/// which halves the latency of a lone dot.
template <class Format>
inline BlockSum add_block(BlockSum sum, const ScaledBlock& w, const ActivationQ16KBlock& x) {
    __m256i even = _mm256_setzero_si256();
    __m256i odd = _mm256_setzero_si256();
    for (std::uint32_t i = 0; i < 256; i += 32) {
        even = add_products16(even, load32(w.q + i), load32(x.q + i));
        odd = add_products16(odd, load32(w.q + i + 16), load32(x.q + i + 16));
    }
    const __m256i dots = _mm256_add_epi32(even, odd);
    sum = _mm256_fmadd_ps(_mm256_set1_ps(w.d * x.d), _mm256_cvtepi32_ps(dots), sum);
    if constexpr (Format::kMins) {
        const __m256i mins =
            _mm256_add_epi32(_mm256_mullo_epi32(load32(w.min), load32(x.sum)),
                             _mm256_mullo_epi32(load32(w.min + 8), load32(x.sum + 8)));
        sum = _mm256_fnmadd_ps(_mm256_set1_ps(w.dmin * x.d), _mm256_cvtepi32_ps(mins), sum);
    }
    return sum;
}

/// Bytes as 16-bit integers.
inline void widen(const std::byte* q, std::int16_t* out) {
    for (std::uint32_t i = 0; i < 32; i += 16)
        _mm256_store_si256(reinterpret_cast<__m256i*>(out + i),
                           _mm256_cvtepi8_epi16(load16(q + i)));
}

inline BlockSum add_q8_block(BlockSum sum, float dw, const std::int16_t* w,
                             const ActivationQ16Block& x) {
    const __m256i low = _mm256_madd_epi16(load32(w), load32(x.q));
    const __m256i dots = add_products16(low, load32(w + 16), load32(x.q + 16));
    return _mm256_fmadd_ps(_mm256_set1_ps(dw * x.d), _mm256_cvtepi32_ps(dots), sum);
}

#else

using BlockSum = float;
inline BlockSum zero_block_sum() { return 0.0f; }
inline float total(BlockSum a) { return a; }
inline BlockSum add_block_sums(BlockSum a, BlockSum b) { return a + b; }

template <class Format>
inline void scale_weights(const IntegerBlock& block, ScaledBlock& out) {
    for (std::uint32_t j = 0; j < 16; ++j)
        for (std::uint32_t i = 16 * j; i < 16 * j + 16; ++i) {
            auto q = static_cast<std::int16_t>(block.q[i] * block.scale[j]);
            if constexpr (Format::kSigned) q = static_cast<std::int16_t>(q * block.sign[i]);
            out.q[i] = q;
        }
}

/// In 64 bits, since here one lane takes what eight share above.
template <class Format>
inline BlockSum add_block(BlockSum sum, const ScaledBlock& w, const ActivationQ16KBlock& x) {
    std::int64_t dots = 0;
    std::int64_t mins = 0;
    for (std::uint32_t i = 0; i < 256; ++i) dots += std::int32_t{w.q[i]} * x.q[i];
    if constexpr (Format::kMins)
        for (std::uint32_t j = 0; j < 16; ++j) mins += std::int64_t{w.min[j]} * x.sum[j];
    return sum + (w.d * x.d * static_cast<float>(dots) - w.dmin * x.d * static_cast<float>(mins));
}

inline void widen(const std::byte* q, std::int16_t* out) {
    for (std::uint32_t i = 0; i < 32; ++i) out[i] = static_cast<std::int8_t>(q[i]);
}

inline BlockSum add_q8_block(BlockSum sum, float dw, const std::int16_t* w,
                             const ActivationQ16Block& x) {
    std::int32_t dots = 0;
    for (std::uint32_t i = 0; i < 32; ++i) dots += w[i] * x.q[i];
    return sum + dw * x.d * static_cast<float>(dots);
}

#endif

template <class Format>
inline void scale_block(const IntegerBlock& block, ScaledBlock& out) {
    scale_weights<Format>(block, out);
    if constexpr (Format::kMins)
        for (std::uint32_t j = 0; j < 16; ++j) out.min[j] = block.min[j];
    out.d = block.d;
    out.dmin = block.dmin;
}

template <class Format>
void dot_q16k(const DotTile& tile) {
    IntegerBlock block;
    ScaledBlock scaled;
    for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
        BlockSum sums[kTokenTile];
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t) sums[t] = zero_block_sum();
        const std::byte* row = tile.weight + r * tile.row_bytes;
        for (std::uint32_t b = 0; b < tile.n_in / 256; ++b) {
            Format::integers(row + b * Format::kBytes, block);
            scale_block<Format>(block, scaled);
            for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
                sums[t] = add_block<Format>(
                    sums[t], scaled, static_cast<const ActivationQ16KBlock*>(tile.inputs[t])[b]);
        }
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            tile.out[t * kRowTile + r] = total(sums[t]);
    }
}

/// Even and odd blocks have a chain of additions each, which halves the latency of a lone dot.
inline void dot_q8_0(const DotTile& tile) {
    const std::uint32_t n_blocks = tile.n_in / kQ16Elements;
    for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
        const std::byte* row = tile.weight + r * tile.row_bytes;
        BlockSum even[kTokenTile];
        BlockSum odd[kTokenTile];
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t) even[t] = odd[t] = zero_block_sum();
        for (std::uint32_t first = 0; first < n_blocks; first += 8) {
            const std::uint32_t n = n_blocks - first < 8 ? n_blocks - first : 8;
            const std::byte* blocks = row + std::uint64_t{first} * 34;
            float dw[8];
            alignas(64) std::int16_t w[8 * kQ16Elements];
            for (std::uint32_t b = 0; b < n; ++b) {
                dw[b] = load_half(blocks + 34 * b);
                widen(blocks + 34 * b + 2, w + b * kQ16Elements);
            }
            for (std::uint32_t t = 0; t < tile.n_tokens; ++t) {
                const auto* x = static_cast<const ActivationQ16Block*>(tile.inputs[t]) + first;
                std::uint32_t b = 0;
                for (; b + 2 <= n; b += 2) {
                    even[t] = add_q8_block(even[t], dw[b], w + b * kQ16Elements, x[b]);
                    odd[t] = add_q8_block(odd[t], dw[b + 1], w + (b + 1) * kQ16Elements, x[b + 1]);
                }
                if (b < n) even[t] = add_q8_block(even[t], dw[b], w + b * kQ16Elements, x[b]);
            }
        }
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            tile.out[t * kRowTile + r] = total(add_block_sums(even[t], odd[t]));
    }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
