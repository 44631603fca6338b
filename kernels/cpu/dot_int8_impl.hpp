#pragma once

// Dots with int8 inputs: Q8_0 with Q8 blocks, Q2_K, Q4_K and IQ2_XXS with Q8_K blocks. Sums inside
// a block are exact integers. Included only by the leaf files.

#include "kernels/cpu/decode_impl.hpp"

namespace plimsoll::kernels::cpu {
namespace {

#if defined(__AVX2__)

/// Eight lanes of partial sums of one dot.
using BlockSum = __m256;
inline BlockSum zero_block_sum() { return _mm256_setzero_ps(); }
inline float total(BlockSum a) {
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

/// acc + pairs . scales, 16-bit lanes summed by two into 32-bit lanes.
inline __m256i add_products16(__m256i acc, __m256i pairs, __m256i scales) {
#if defined(__AVX512VNNI__)
    return _mm256_dpwssd_epi32(acc, pairs, scales);
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, scales));
#endif
}

/// Sums of products of unsigned and signed bytes, by four into 32-bit lanes. |u| <= 128 keeps the
/// 16-bit sums of the fallback in range (128 * 127 * 2 < 32768).
inline __m256i products8(__m256i u, __m256i s) {
#if defined(__AVX512VNNI__)
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
#else
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
#endif
}

/// sum + d * (scaled integer dot) - dmin * (mins . bsum), for one block of 256. Inputs never hold
/// -128, so that taking the weight's sign to the input cannot overflow.
template <class Format>
inline BlockSum add_block(BlockSum sum, const IntegerBlock& w, const ActivationQ8KBlock& x) {
    __m256i dots = _mm256_setzero_si256();
    for (std::uint32_t g = 0; g < 8; ++g) {
        __m256i q = load32(x.q + 32 * g);
        if constexpr (Format::kSigned) q = _mm256_sign_epi8(q, load32(w.sign + 32 * g));
        const __m256i pairs = _mm256_maddubs_epi16(load32(w.q + 32 * g), q);
        const __m256i scales =
            _mm256_set_m128i(_mm_set1_epi16(w.scale[2 * g + 1]), _mm_set1_epi16(w.scale[2 * g]));
        dots = add_products16(dots, pairs, scales);
    }
    sum = _mm256_fmadd_ps(_mm256_set1_ps(w.d * x.d), _mm256_cvtepi32_ps(dots), sum);
    if constexpr (Format::kMins) {
        const __m256i mins = _mm256_madd_epi16(load32(w.min), load32(x.bsum));
        sum = _mm256_fnmadd_ps(_mm256_set1_ps(w.dmin * x.d), _mm256_cvtepi32_ps(mins), sum);
    }
    return sum;
}

inline BlockSum add_q8_block(BlockSum sum, float dw, const std::byte* qw,
                             const ActivationQ8Block& x) {
    const __m256i w = load32(qw);
    const __m256i dots = products8(_mm256_abs_epi8(w), _mm256_sign_epi8(load32(x.q), w));
    return _mm256_fmadd_ps(_mm256_set1_ps(dw * x.d), _mm256_cvtepi32_ps(dots), sum);
}
inline BlockSum add_block_sums(BlockSum a, BlockSum b) { return _mm256_add_ps(a, b); }

#else

using BlockSum = float;
inline BlockSum zero_block_sum() { return 0.0f; }
inline float total(BlockSum a) { return a; }
inline BlockSum add_block_sums(BlockSum a, BlockSum b) { return a + b; }

template <class Format>
inline BlockSum add_block(BlockSum sum, const IntegerBlock& w, const ActivationQ8KBlock& x) {
    std::int32_t dots = 0;
    std::int32_t mins = 0;
    for (std::uint32_t j = 0; j < 16; ++j) {
        std::int32_t group = 0;
        for (std::uint32_t i = 16 * j; i < 16 * j + 16; ++i) {
            std::int32_t q = w.q[i];
            if constexpr (Format::kSigned) q *= w.sign[i];
            group += q * x.q[i];
        }
        dots += group * w.scale[j];
        if constexpr (Format::kMins) mins += w.min[j] * x.bsum[j];
    }
    return sum + (w.d * x.d * static_cast<float>(dots) - w.dmin * x.d * static_cast<float>(mins));
}

inline BlockSum add_q8_block(BlockSum sum, float dw, const std::byte* qw,
                             const ActivationQ8Block& x) {
    std::int8_t w[32];
    std::memcpy(w, qw, 32);
    std::int32_t dots = 0;
    for (std::uint32_t i = 0; i < 32; ++i) dots += w[i] * x.q[i];
    return sum + dw * x.d * static_cast<float>(dots);
}

#endif

template <class Format>
void dot_q8k(const DotTile& tile) {
    IntegerBlock block;
    for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
        BlockSum sums[kTokenTile];
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t) sums[t] = zero_block_sum();
        const std::byte* row = tile.weight + r * tile.row_bytes;
        for (std::uint32_t b = 0; b < tile.n_in / 256; ++b) {
            Format::integers(row + b * Format::kBytes, block);
            for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
                sums[t] = add_block<Format>(
                    sums[t], block, static_cast<const ActivationQ8KBlock*>(tile.inputs[t])[b]);
        }
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            tile.out[t * kRowTile + r] = total(sums[t]);
    }
}

/// Even and odd blocks have a chain of additions each, which halves the latency of a lone dot.
inline void dot_q8_0(const DotTile& tile) {
    const std::uint32_t n_blocks = tile.n_in / kQ8Elements;
    for (std::uint32_t r = 0; r < tile.n_rows; ++r) {
        const std::byte* row = tile.weight + r * tile.row_bytes;
        BlockSum even[kTokenTile];
        BlockSum odd[kTokenTile];
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t) even[t] = odd[t] = zero_block_sum();
        for (std::uint32_t first = 0; first < n_blocks; first += 8) {
            const std::uint32_t n = n_blocks - first < 8 ? n_blocks - first : 8;
            const std::byte* blocks = row + std::uint64_t{first} * 34;
            float dw[8];
            for (std::uint32_t b = 0; b < n; ++b) dw[b] = load_half(blocks + 34 * b);
            for (std::uint32_t t = 0; t < tile.n_tokens; ++t) {
                const auto* x = static_cast<const ActivationQ8Block*>(tile.inputs[t]) + first;
                std::uint32_t b = 0;
                for (; b + 2 <= n; b += 2) {
                    even[t] = add_q8_block(even[t], dw[b], blocks + 34 * b + 2, x[b]);
                    odd[t] = add_q8_block(odd[t], dw[b + 1], blocks + 34 * (b + 1) + 2, x[b + 1]);
                }
                if (b < n) even[t] = add_q8_block(even[t], dw[b], blocks + 34 * b + 2, x[b]);
            }
        }
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            tile.out[t * kRowTile + r] = total(add_block_sums(even[t], odd[t]));
    }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
