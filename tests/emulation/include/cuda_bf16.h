#pragma once

// __nv_bfloat16: storage and conversions.

#include <cuda_runtime.h>

#include "kernels/half.hpp"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct alignas(2) __nv_bfloat16 {
    unsigned short bits;

    __nv_bfloat16() = default;
    __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits(raw.x) {}
    explicit __nv_bfloat16(float value) {
        const unsigned wide = std::bit_cast<unsigned>(value);
        bits = isnan(value)
                   ? 0x7fff
                   : static_cast<unsigned short>((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
    }
    operator float() const { return plimsoll::kernels::f32_from_bf16(bits); }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 a) { return plimsoll::kernels::f32_from_bf16(a.bits); }
inline __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return __nv_bfloat16_raw{a}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
    return {__bfloat162float(a.x), __bfloat162float(a.y)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
