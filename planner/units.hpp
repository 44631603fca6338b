#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "planner/result.hpp"

namespace plimsoll {

inline constexpr std::uint64_t kKiB = 1ull << 10;
inline constexpr std::uint64_t kMiB = 1ull << 20;
inline constexpr std::uint64_t kGiB = 1ull << 30;

/// Smallest multiple of `alignment` (a power of two) that is >= `value`. The caller knows it fits.
[[nodiscard]] constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

[[nodiscard]] constexpr std::uint64_t ceil_div(std::uint64_t value, std::uint64_t divisor) {
    return value / divisor + (value % divisor != 0 ? 1 : 0);
}

[[nodiscard]] constexpr bool is_power_of_two(std::uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

/// Product or sum, or nothing where it would not fit 64 bits. For sizes that come from a file.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
    std::uint64_t out = 0;
    if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
    return out;
}
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
    std::uint64_t out = 0;
    if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
    return out;
}

/// `a - b`, or 0 where b is larger.
[[nodiscard]] constexpr std::uint64_t saturating_sub(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}

/// Reads `96GiB`, `450MiB`, `24GB`, `1.5GiB`, `4096` (bytes). Units: B KiB MiB GiB TiB KB MB GB TB,
/// in any case, a space before the unit allowed. Fractions are rounded down to a byte. Refuses
/// negative numbers, other units and anything that does not fit 63 bits, with a message that quotes
/// the text.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

/// `1,522 MiB`: whole MiB, rounded half up, thousands separated. For tables and messages.
[[nodiscard]] std::string format_mib(std::uint64_t bytes);

/// `80.76 GiB`, `3.5 MiB`, `583 B`: three to four significant digits, binary units.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// `131,072`.
[[nodiscard]] std::string format_count(std::uint64_t count);

}  // namespace plimsoll
