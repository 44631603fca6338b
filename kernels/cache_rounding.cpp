#include "kernels/cache_rounding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace plimsoll::kernels {
namespace {

constexpr float kFp8Max = 448.0f;
constexpr float kFp8AmaxMin = 1e-4f;
constexpr float kFp4Max = 6.0f;
constexpr float kFp4AmaxMin = 6.0f * 0x1p-126f;

float amax_of(const float* values, std::uint32_t n) {
    float amax = 0.0f;
    for (std::uint32_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(values[i]));
    return amax;
}

/// Least e with limit * 2^e >= amax. In double both sides are exact, so the boundary is exact too;
/// a float32 log2 would round to either side of it.
std::int32_t least_exponent(float amax, float limit) {
    const double ratio = static_cast<double>(amax) / static_cast<double>(limit);
    std::int32_t exponent = std::ilogb(ratio);
    if (std::ldexp(static_cast<double>(limit), exponent) < static_cast<double>(amax)) ++exponent;
    return exponent;
}

}  // namespace

std::uint8_t e4m3_from_f32(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    if (magnitude < 0x3c800000u) {
        // Below 2^-6: codes count multiples of 2^-9. Adding 2^14 leaves the float's last bit worth
        // 2^-9, so the addition itself rounds to nearest even.
        const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
        const std::uint32_t code =
            std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1p14f);
        return static_cast<std::uint8_t>(sign | code);
    }
    const std::uint32_t odd = (magnitude >> 20) & 1u;
    const std::uint32_t code = (magnitude - (120u << 23) + 0x7ffffu + odd) >> 20;
    return static_cast<std::uint8_t>(sign | std::min(code, 126u));
}

std::uint8_t e2m1_from_f32(float value) {
    const float magnitude = std::fabs(value);
    // Midpoints between neighbours; a value on one goes to the even code of the two.
    constexpr float kMidpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    std::uint8_t code = 0;
    for (std::uint8_t i = 0; i < 7; ++i) {
        const bool above = i % 2 == 0 ? magnitude > kMidpoints[i] : magnitude >= kMidpoints[i];
        if (above) code = static_cast<std::uint8_t>(i + 1);
    }
    return static_cast<std::uint8_t>(code | (std::signbit(value) ? 8u : 0u));
}

std::int32_t fp8_scale_exponent(float amax) {
    return least_exponent(std::max(amax, kFp8AmaxMin), kFp8Max);
}

std::int32_t fp4_scale_exponent(float amax) {
    return least_exponent(std::max(amax, kFp4AmaxMin), kFp4Max);
}

void fp8_encode(const float* values, std::uint32_t n, std::uint8_t* codes,
                std::uint8_t* exponents) {
    for (std::uint32_t first = 0, block = 0; first < n; first += 64, ++block) {
        const std::uint32_t count = std::min(64u, n - first);
        const std::int32_t exponent = fp8_scale_exponent(amax_of(values + first, count));
        const float inverse = power_of_two(-exponent);
        exponents[block] = stored_exponent(exponent);
        for (std::uint32_t i = first; i < first + count; ++i)
            codes[i] = e4m3_from_f32(std::clamp(values[i] * inverse, -kFp8Max, kFp8Max));
    }
}

void fp8_round(float* values, std::uint32_t n) {
    for (std::uint32_t first = 0; first < n; first += 64) {
        const std::uint32_t count = std::min(64u, n - first);
        const std::int32_t exponent = fp8_scale_exponent(amax_of(values + first, count));
        const float inverse = power_of_two(-exponent);
        const float scale = power_of_two(exponent);
        for (std::uint32_t i = first; i < first + count; ++i) {
            const float scaled = std::clamp(values[i] * inverse, -kFp8Max, kFp8Max);
            values[i] = f32_from_e4m3(e4m3_from_f32(scaled)) * scale;
        }
    }
}

void hadamard(float* values, std::uint32_t n) {
    for (std::uint32_t stride = 1; stride < n; stride *= 2)
        for (std::uint32_t first = 0; first < n; first += 2 * stride)
            for (std::uint32_t i = first; i < first + stride; ++i) {
                const float a = values[i];
                const float b = values[i + stride];
                values[i] = a + b;
                values[i + stride] = a - b;
            }
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
    for (std::uint32_t i = 0; i < n; ++i) values[i] *= scale;
}

void fp4_encode(const float* values, std::uint32_t n, std::uint8_t* codes,
                std::uint8_t* exponents) {
    for (std::uint32_t first = 0, block = 0; first < n; first += 32, ++block) {
        const std::uint32_t count = std::min(32u, n - first);
        const std::int32_t exponent = fp4_scale_exponent(amax_of(values + first, count));
        const float inverse = power_of_two(-exponent);
        exponents[block] = stored_exponent(exponent);
        for (std::uint32_t i = first; i < first + count; i += 2) {
            const std::uint8_t low =
                e2m1_from_f32(std::clamp(values[i] * inverse, -kFp4Max, kFp4Max));
            const std::uint8_t high =
                e2m1_from_f32(std::clamp(values[i + 1] * inverse, -kFp4Max, kFp4Max));
            codes[i / 2] = static_cast<std::uint8_t>(low | (high << 4));
        }
    }
}

void fp4_round(float* values, std::uint32_t n) {
    for (std::uint32_t first = 0; first < n; first += 32) {
        const std::uint32_t count = std::min(32u, n - first);
        const std::int32_t exponent = fp4_scale_exponent(amax_of(values + first, count));
        const float inverse = power_of_two(-exponent);
        const float scale = power_of_two(exponent);
        for (std::uint32_t i = first; i < first + count; ++i) {
            const float scaled = std::clamp(values[i] * inverse, -kFp4Max, kFp4Max);
            values[i] = f32_from_e2m1(e2m1_from_f32(scaled)) * scale;
        }
    }
}

}  // namespace plimsoll::kernels
