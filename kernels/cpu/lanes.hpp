#pragma once

// Sixteen float lanes on whatever the including file is compiled for. Included only by the leaf
// files: everything is local to the file, and no inline function from elsewhere is called, so that
// no code made for one instruction set can be linked into another's callers.

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#else
#include <cmath>

#include "kernels/half.hpp"
#endif

namespace plimsoll::kernels::cpu {
namespace {

#if defined(__AVX512F__)

struct Lanes {
    __m512 v;
};
inline Lanes zero_lanes() { return {_mm512_setzero_ps()}; }
inline Lanes load_lanes(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store_lanes(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline float sum_lanes(Lanes a) {
    const __m256 lo = _mm512_castps512_ps256(a.v);
    const __m256 hi = _mm512_extractf32x8_ps(a.v, 1);
    const __m256 s8 = _mm256_add_ps(lo, hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline Lanes load_half_lanes(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}

#elif defined(__AVX2__)

struct Lanes {
    __m256 lo;
    __m256 hi;
};
inline Lanes zero_lanes() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes load_lanes(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store_lanes(float* p, Lanes a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
inline Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes mul(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline float sum_lanes(Lanes a) {
    const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline Lanes load_half_lanes(const void* p) {
    const auto* halves = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}

#else

struct Lanes {
    float v[16];
};
inline Lanes zero_lanes() { return {}; }
inline Lanes load_lanes(const float* p) {
    Lanes a;
    std::memcpy(a.v, p, sizeof(a.v));
    return a;
}
inline void store_lanes(float* p, Lanes a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline Lanes broadcast(float x) {
    Lanes a;
    for (float& lane : a.v) lane = x;
    return a;
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    for (int i = 0; i < 16; ++i) c.v[i] += a.v[i] * b.v[i];
    return c;
}
inline Lanes mul(Lanes a, Lanes b) {
    for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
    return a;
}
inline float sum_lanes(Lanes a) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
    return a.v[0];
}
inline Lanes load_half_lanes(const void* p) {
    std::uint16_t halves[16];
    std::memcpy(halves, p, sizeof(halves));
    Lanes a;
    for (int i = 0; i < 16; ++i) a.v[i] = f32_from_f16(halves[i]);
    return a;
}

#endif

inline float load_half(const void* p) {
    std::uint16_t half = 0;
    std::memcpy(&half, p, sizeof(half));
#if defined(__AVX2__)
    return _cvtsh_ss(half);
#else
    return f32_from_f16(half);
#endif
}

/// The last n < 16 elements, the other lanes zero.
inline Lanes load_tail(const float* p, std::uint32_t n) {
    float padded[16] = {};
    std::memcpy(padded, p, n * sizeof(float));
    return load_lanes(padded);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
