#include "tools/whole_number.hpp"

#include <fmt/format.h>

#include <charconv>

#include "planner/units.hpp"

namespace plimsoll {

Result<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t min,
                                         std::uint64_t max) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [at, problem] = std::from_chars(text.data(), end, value);
    if (problem == std::errc{} && at == end && value >= min && value <= max) return value;
    const std::string range =
        max == kAnyCount ? fmt::format("of at least {}", format_count(min))
                         : fmt::format("from {} to {}", format_count(min), format_count(max));
    return Error{ErrorKind::usage, fmt::format("'{}' is not a whole number {}", text, range)};
}

std::function<std::string(const std::string&)> whole_number(std::uint64_t min, std::uint64_t max) {
    return [min, max](const std::string& text) {
        const Result<std::uint64_t> value = parse_whole_number(text, min, max);
        return value ? std::string() : value.error().message;
    };
}

}  // namespace plimsoll
