#include "planner/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>

namespace plimsoll {
namespace {

struct Unit {
    std::string_view name;  // lower case
    std::uint64_t bytes;
};

constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"kib", kKiB},
    Unit{"mib", kMiB},
    Unit{"gib", kGiB},
    Unit{"tib", kGiB << 10},
    Unit{"kb", 1'000},
    Unit{"mb", 1'000'000},
    Unit{"gb", 1'000'000'000},
    Unit{"tb", 1'000'000'000'000},
};

Error bad_size(std::string_view text, std::string_view why) {
    return {ErrorKind::usage,
            fmt::format("'{}' is not a size: {} (write 96GiB, 450MiB, 24GB or bytes)", text, why)};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
    constexpr std::uint64_t kLimit = 1ull << 63;
    std::size_t at = 0;
    std::uint64_t whole = 0;
    bool any_digit = false;
    const auto is_digit = [&](std::size_t i) {
        return i < text.size() && text[i] >= '0' && text[i] <= '9';
    };
    for (; is_digit(at); ++at, any_digit = true) {
        const auto tens = checked_mul(whole, 10);
        const auto next =
            tens ? checked_add(*tens, static_cast<std::uint64_t>(text[at] - '0')) : std::nullopt;
        if (!next || *next >= kLimit) return bad_size(text, "too large");
        whole = *next;
    }
    std::uint64_t fraction_billionths = 0;
    if (at < text.size() && text[at] == '.') {
        ++at;
        if (!is_digit(at)) return bad_size(text, "no digit after the point");
        std::uint64_t place = 100'000'000;
        for (; is_digit(at); ++at, any_digit = true, place /= 10)
            fraction_billionths += place * static_cast<std::uint64_t>(text[at] - '0');
    }
    if (!any_digit) return bad_size(text, "it does not start with a number");
    while (at < text.size() && text[at] == ' ') ++at;
    std::string unit;
    for (; at < text.size(); ++at)
        unit += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
    for (const Unit& row : kUnits) {
        if (row.name != unit) continue;
        const auto bytes = checked_mul(whole, row.bytes);
        // Below 10^12 * 10^9 bytes the fraction's product fits; the unit is at most 2^40.
        const auto part = static_cast<std::uint64_t>(
            static_cast<unsigned __int128>(fraction_billionths) * row.bytes / 1'000'000'000u);
        const auto sum = bytes ? checked_add(*bytes, part) : std::nullopt;
        if (!sum || *sum >= kLimit) return bad_size(text, "too large");
        return *sum;
    }
    return bad_size(text, fmt::format("unknown unit '{}'", unit));
}

std::string format_count(std::uint64_t count) {
    std::string digits = std::to_string(count);
    for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
    return digits;
}

std::string format_mib(std::uint64_t bytes) {
    return format_count(bytes / kMiB + (bytes % kMiB >= kMiB / 2 ? 1 : 0)) + " MiB";
}

std::string format_bytes(std::uint64_t bytes) {
    const auto scaled = [&](std::uint64_t unit, std::string_view name) {
        const double value = static_cast<double>(bytes) / static_cast<double>(unit);
        return value < 10    ? fmt::format("{:.2f} {}", value, name)
               : value < 100 ? fmt::format("{:.2f} {}", value, name)
                             : fmt::format("{:.1f} {}", value, name);
    };
    if (bytes < kKiB) return fmt::format("{} B", bytes);
    if (bytes < kMiB) return scaled(kKiB, "KiB");
    if (bytes < kGiB) return scaled(kMiB, "MiB");
    return scaled(kGiB, "GiB");
}

}  // namespace plimsoll
