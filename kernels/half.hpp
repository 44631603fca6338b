#pragma once

#include <bit>
#include <cstdint>

namespace plimsoll::kernels {

/// IEEE binary16 and bfloat16 as bit patterns, converted without hardware support. Round to
/// nearest, ties to even; infinities and NaN (quiet) are kept.
[[nodiscard]] constexpr float f32_from_f16(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
    const std::uint32_t exponent = (half >> 10) & 31u;
    const std::uint32_t mantissa = half & 1023u;
    if (exponent == 0) {
        // Subnormal: mantissa * 2^-24 is exact in float32, and its sign bit may be set on zero.
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) {
        const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
        return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

[[nodiscard]] constexpr std::uint16_t f16_from_f32(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    // 65520 is the midpoint between the largest half and the next power of two; it rounds to
    // infinity.
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Below 2^-14: adding 0.5 puts the half's last subnormal bit at the float's last bit, and
        // the addition rounds to nearest even.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(
            sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f)));
    }
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

[[nodiscard]] constexpr float f32_from_bf16(std::uint16_t value) {
    return std::bit_cast<float>(std::uint32_t{value} << 16);
}

}  // namespace plimsoll::kernels
