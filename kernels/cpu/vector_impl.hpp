#pragma once

// Vector loops of attention, norms, softmax and activation quantisation. Included only by the leaf
// files.

#include "kernels/cpu/lanes.hpp"
#include "kernels/types.hpp"

namespace plimsoll::kernels::cpu {
namespace {

inline void dot_rows(const float* a, const float* const* rows, std::uint32_t n_rows,
                     std::uint32_t n, float* out) {
    const std::uint32_t whole = n / 16 * 16;
    for (std::uint32_t first = 0; first < n_rows; first += 4) {
        // A short last group repeats its first row, so that one loop serves all and a row's sum is
        // the same in any group.
        const float* row[4];
        for (std::uint32_t r = 0; r < 4; ++r) row[r] = rows[first + r < n_rows ? first + r : first];
        Lanes acc[4] = {zero_lanes(), zero_lanes(), zero_lanes(), zero_lanes()};
        for (std::uint32_t i = 0; i < whole; i += 16) {
            const Lanes x = load_lanes(a + i);
            for (std::uint32_t r = 0; r < 4; ++r) acc[r] = fma(load_lanes(row[r] + i), x, acc[r]);
        }
        if (whole < n)
            for (std::uint32_t r = 0; r < 4; ++r)
                acc[r] = fma(load_tail(row[r] + whole, n - whole), load_tail(a + whole, n - whole),
                             acc[r]);
        for (std::uint32_t r = 0; r < 4 && first + r < n_rows; ++r)
            out[first + r] = sum_lanes(acc[r]);
    }
}

inline void accumulate_rows(float* y, float scale, const float* weights, const float* const* rows,
                            std::uint32_t n_rows, std::uint32_t n) {
    const Lanes factor = broadcast(scale);
    std::uint32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        Lanes acc[4];
        for (std::uint32_t k = 0; k < 4; ++k) acc[k] = mul(load_lanes(y + i + 16 * k), factor);
        for (std::uint32_t r = 0; r < n_rows; ++r) {
            const Lanes weight = broadcast(weights[r]);
            for (std::uint32_t k = 0; k < 4; ++k)
                acc[k] = fma(weight, load_lanes(rows[r] + i + 16 * k), acc[k]);
        }
        for (std::uint32_t k = 0; k < 4; ++k) store_lanes(y + i + 16 * k, acc[k]);
    }
    for (; i < n; i += 16) {
        const std::uint32_t count = n - i < 16 ? n - i : 16;
        Lanes acc = mul(load_tail(y + i, count), factor);
        for (std::uint32_t r = 0; r < n_rows; ++r)
            acc = fma(broadcast(weights[r]), load_tail(rows[r] + i, count), acc);
        float padded[16];
        store_lanes(padded, acc);
        std::memcpy(y + i, padded, count * sizeof(float));
    }
}

inline double sum_squares(const float* x, std::uint32_t n) {
    double acc[8] = {};
    std::uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (std::uint32_t k = 0; k < 8; ++k)
            acc[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
    for (; i < n; ++i) acc[i % 8] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return ((acc[0] + acc[4]) + (acc[2] + acc[6])) + ((acc[1] + acc[5]) + (acc[3] + acc[7]));
}

#if defined(__AVX2__)

/// exp by range reduction to |r| <= ln2 / 2 and the degree-6 Taylor polynomial's minimax refinement
/// (coefficients of Cephes expf); ln2 in two parts keeps r exact.
inline __m256 exp8(__m256 x) {
    const __m256 too_small = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_LT_OQ);
    const __m256 too_large = _mm256_cmp_ps(x, _mm256_set1_ps(88.72283f), _CMP_GT_OQ);
    // Operand order keeps a NaN in x.
    const __m256 bounded =
        _mm256_min_ps(_mm256_set1_ps(88.72283f), _mm256_max_ps(_mm256_set1_ps(-87.3f), x));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), bounded);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    // 2^n in two factors: n may be 128, whose power alone is not a float.
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 b = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
    p = _mm256_mul_ps(_mm256_mul_ps(p, a), b);
    p = _mm256_andnot_ps(too_small, p);
    return _mm256_blendv_ps(p, _mm256_set1_ps(__builtin_inff()), too_large);
}

inline void exp_values(float* x, std::uint32_t n) {
    std::uint32_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, exp8(_mm256_loadu_ps(x + i)));
    if (i == n) return;
    float padded[8] = {};
    std::memcpy(padded, x + i, (n - i) * sizeof(float));
    _mm256_storeu_ps(padded, exp8(_mm256_loadu_ps(padded)));
    std::memcpy(x + i, padded, (n - i) * sizeof(float));
}

#else

inline void exp_values(float* x, std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = x[i] < -87.3f ? 0.0f : std::exp(x[i]);
}

#endif

/// Nearest integer, ties to even, for |x| < 2^22: the sum's last bit is worth 1.
inline std::int32_t round_to_even(float x) {
    const float shifted = x + 12582912.0f;
    std::int32_t bits = 0;
    std::memcpy(&bits, &shifted, sizeof(bits));
    return bits - 0x4b400000;
}

/// n elements as 16-bit integers and their common scale, max|x| / 32767. A scale that underflows
/// would divide by zero: such a block is zero to every product.
inline float quantize_block(const float* x, std::uint32_t n, std::int16_t* q) {
    constexpr float kLargest = 32767.0f;
    float amax = 0.0f;
    for (std::uint32_t i = 0; i < n; ++i) {
        const float magnitude = x[i] < 0.0f ? -x[i] : x[i];
        amax = magnitude > amax ? magnitude : amax;
    }
    const float d = amax / kLargest;
    for (std::uint32_t i = 0; i < n; ++i) {
        const std::int32_t rounded = d > 0.0f ? round_to_even(x[i] / d) : 0;
        // A denormal scale is coarse, and a quotient may then pass the largest.
        q[i] = static_cast<std::int16_t>(rounded < -32767 ? -32767
                                                          : (rounded > 32767 ? 32767 : rounded));
    }
    return d;
}

inline void quantize_q16(const float* x, std::uint32_t n, ActivationQ16Block* out) {
    for (std::uint32_t b = 0; b < n / kQ16Elements; ++b, x += kQ16Elements)
        out[b].d = quantize_block(x, kQ16Elements, out[b].q);
}

inline void quantize_q16k(const float* x, std::uint32_t n, ActivationQ16KBlock* out) {
    for (std::uint32_t b = 0; b < n / kQ16KElements; ++b, x += kQ16KElements) {
        out[b].d = quantize_block(x, kQ16KElements, out[b].q);
        for (std::uint32_t j = 0; j < kQ16KElements / 16; ++j) {
            out[b].sum[j] = 0;
            for (std::uint32_t i = 16 * j; i < 16 * j + 16; ++i) out[b].sum[j] += out[b].q[i];
        }
    }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
