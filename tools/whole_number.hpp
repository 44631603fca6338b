#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "planner/result.hpp"

namespace plimsoll {

inline constexpr std::uint64_t kAnyCount = std::numeric_limits<std::uint64_t>::max();

/// A whole number from `min` to `max`, digits and nothing else; an error says so and quotes the
/// text.
[[nodiscard]] Result<std::uint64_t> parse_whole_number(std::string_view text, std::uint64_t min,
                                                       std::uint64_t max);

/// The same as a check of a CLI11 option, whose own parser would wrap -1 around and cut 1.5. Gives
/// the problem or nothing.
[[nodiscard]] std::function<std::string(const std::string&)> whole_number(
    std::uint64_t min, std::uint64_t max = kAnyCount);

}  // namespace plimsoll
