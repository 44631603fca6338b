#pragma once

#include <bit>
#include <cstdint>

namespace plimsoll::kernels {

/// The roundings of cached rows (DeepSeek-V4 reference: FP8 KV rows, rotated FP4 indexer rows), one
/// value and one block at a time. Host arithmetic shared by the ops, the storage formats and the
/// tests.

/// E4M3 code of a value in [-448, 448]: sign in bit 7, nearest, ties to the even code; NaN gives
/// 0x7f.
[[nodiscard]] std::uint8_t e4m3_from_f32(float value);
/// Value of a code; 0x7f and 0xff give NaN.
[[nodiscard]] constexpr float f32_from_e4m3(std::uint8_t code) {
    const std::uint32_t sign = std::uint32_t{code & 0x80u} << 24;
    const std::uint32_t exponent = (code >> 3) & 15u;
    const std::uint32_t mantissa = code & 7u;
    float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent != 0)
        magnitude = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
    if ((code & 0x7fu) == 0x7fu) magnitude = std::bit_cast<float>(0x7fc00000u);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

/// E2M1 code of a value in [-6, 6]: sign in bit 3, magnitudes 0 .5 1 1.5 2 3 4 6, nearest, ties to
/// even.
[[nodiscard]] std::uint8_t e2m1_from_f32(float value);
[[nodiscard]] constexpr float f32_from_e2m1(std::uint8_t code) {
    constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const float magnitude = kMagnitudes[code & 7u];
    return (code & 8u) != 0 ? -magnitude : magnitude;
}

/// Exponent e of a block's scale 2^e: the least with 448 * 2^e >= max(1e-4, amax); -22 .. 120.
[[nodiscard]] std::int32_t fp8_scale_exponent(float amax);
/// The same for FP4: 6 * 2^e >= max(6 * 2^-126, amax); -126 .. 126.
[[nodiscard]] std::int32_t fp4_scale_exponent(float amax);
/// 2^e for e in [-126, 127].
[[nodiscard]] constexpr float power_of_two(std::int32_t exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Biased exponents as stored beside packed rows.
[[nodiscard]] constexpr std::uint8_t stored_exponent(std::int32_t exponent) {
    return static_cast<std::uint8_t>(exponent + 127);
}
[[nodiscard]] constexpr std::int32_t exponent_from_stored(std::uint8_t stored) {
    return std::int32_t{stored} - 127;
}

/// Rounds `n` leading dims of a KV row in blocks of 64 (the last may be shorter). In place.
void fp8_round(float* values, std::uint32_t n);
/// Codes and stored exponents of the same. `codes` [n], `exponents` [ceil(n / 64)].
void fp8_encode(const float* values, std::uint32_t n, std::uint8_t* codes, std::uint8_t* exponents);

/// Walsh-Hadamard transform in natural order, scaled by 1/sqrt(n); n a power of two. In place.
void hadamard(float* values, std::uint32_t n);
/// Rounds `n` values in blocks of 32. In place.
void fp4_round(float* values, std::uint32_t n);
/// Codes, two a byte (element 2i in the low nibble), and stored exponents [ceil(n / 32)]; n even.
void fp4_encode(const float* values, std::uint32_t n, std::uint8_t* codes, std::uint8_t* exponents);

}  // namespace plimsoll::kernels
