#pragma once

// __half and __half2 with the operations that kernels use. Arithmetic is in float32, rounded once.

#include <cuda_runtime.h>

#include "kernels/half.hpp"

struct __half_raw {
    unsigned short x;
};

struct alignas(2) __half {
    unsigned short bits;

    __half() = default;
    __half(const __half_raw& raw) : bits(raw.x) {}
    __half(float value) : bits(plimsoll::kernels::f16_from_f32(value)) {}
    __half(double value) : __half(static_cast<float>(value)) {}
    __half(int value) : __half(static_cast<float>(value)) {}
    __half(unsigned value) : __half(static_cast<float>(value)) {}
    operator float() const { return plimsoll::kernels::f32_from_f16(bits); }
    operator __half_raw() const { return {bits}; }
};
struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_) {}
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half a) { return plimsoll::kernels::f32_from_f16(a.bits); }
inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half __float2half_rz(float a) {
    __half rounded(a);
    if (fabsf(__half2float(rounded)) > fabsf(a)) --rounded.bits;
    return rounded;
}
inline __half __double2half(double a) { return __half(static_cast<float>(a)); }
inline __half __int2half_rn(int a) { return __half(static_cast<float>(a)); }
inline __half __uint2half_rn(unsigned a) { return __half(static_cast<float>(a)); }
inline __half __short2half_rn(short a) { return __half(static_cast<float>(a)); }
inline __half __ushort2half_rn(unsigned short a) { return __half(static_cast<float>(a)); }
inline int __half2int_rn(__half a) { return __float2int_rn(__half2float(a)); }
inline __half __ushort_as_half(unsigned short a) { return __half_raw{a}; }
inline __half __short_as_half(short a) { return __half_raw{static_cast<unsigned short>(a)}; }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline short __half_as_short(__half a) { return static_cast<short>(a.bits); }

inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline float2 __half22float2(__half2 a) { return {__half2float(a.x), __half2float(a.y)}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return __half2float(a.x); }
inline float __high2float(__half2 a) { return __half2float(a.y); }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half2 __lowhigh2highlow(__half2 a) { return {a.y, a.x}; }

inline __half __hadd(__half a, __half b) { return __half(__half2float(a) + __half2float(b)); }
inline __half __hsub(__half a, __half b) { return __half(__half2float(a) - __half2float(b)); }
inline __half __hmul(__half a, __half b) { return __half(__half2float(a) * __half2float(b)); }
inline __half __hdiv(__half a, __half b) { return __half(__half2float(a) / __half2float(b)); }
/// Product and sum are exact in double but for sums over forty binades wide, rounded to odd there.
inline __half __hfma(__half a, __half b, __half c) {
    const double exact =
        static_cast<double>(__half2float(a)) * static_cast<double>(__half2float(b)) +
        static_cast<double>(__half2float(c));
    float near = static_cast<float>(exact);
    // Rounding twice must not make a tie of what is none.
    if (static_cast<double>(near) != exact && isfinite(near)) {
        const bool past = fabs(static_cast<double>(near)) > fabs(exact);
        std::uint32_t bits = std::bit_cast<std::uint32_t>(near);
        if (past) --bits;
        near = std::bit_cast<float>(bits | 1u);
    }
    return __half(near);
}
inline __half __hneg(__half a) { return __half_raw{static_cast<unsigned short>(a.bits ^ 0x8000u)}; }
inline __half __habs(__half a) { return __half_raw{static_cast<unsigned short>(a.bits & 0x7fffu)}; }
inline __half __hmax(__half a, __half b) { return __half(fmaxf(__half2float(a), __half2float(b))); }
inline __half __hmin(__half a, __half b) { return __half(fminf(__half2float(a), __half2float(b))); }
inline bool __hisnan(__half a) { return isnan(__half2float(a)); }
inline bool __hlt(__half a, __half b) { return __half2float(a) < __half2float(b); }
inline bool __hgt(__half a, __half b) { return __half2float(a) > __half2float(b); }

inline __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __half2 __h2div(__half2 a, __half2 b) { return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __half2 __hneg2(__half2 a) { return {__hneg(a.x), __hneg(a.y)}; }
inline __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
inline __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }

inline __half operator+(__half a, __half b) { return __hadd(a, b); }
inline __half operator-(__half a, __half b) { return __hsub(a, b); }
inline __half operator*(__half a, __half b) { return __hmul(a, b); }
inline __half operator/(__half a, __half b) { return __hdiv(a, b); }
inline __half operator-(__half a) { return __hneg(a); }
inline __half2 operator+(__half2 a, __half2 b) { return __hadd2(a, b); }
inline __half2 operator-(__half2 a, __half2 b) { return __hsub2(a, b); }
inline __half2 operator*(__half2 a, __half2 b) { return __hmul2(a, b); }
