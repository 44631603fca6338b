#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// `text` with spaces behind or before it, up to `columns`; longer text stays as it is.
[[nodiscard]] std::string padded(std::string_view text, std::size_t columns);
[[nodiscard]] std::string right_aligned(std::string_view text, std::size_t columns);

/// Lines of at most `columns`, broken at spaces; a longer word has a line of its own. At least one
/// line.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

/// `text` wrapped to `columns` behind `first`, with later lines under where the first began, and a
/// newline behind each. `first` holds no escape sequences.
[[nodiscard]] std::string hanging(std::string_view first, std::string_view text,
                                  std::size_t columns);

/// Splits `cells` columns over `sizes` in proportion, by largest remainder; what is not 0 gets at
/// least one column while there are enough. The result adds up to `cells`, unless all sizes are 0.
[[nodiscard]] std::vector<std::size_t> apportion(const std::vector<double>& sizes,
                                                 std::size_t cells);

/// A rate for people: "0.42", "4.2", "72", "1,810".
[[nodiscard]] std::string format_rate(double per_second);

/// A span for people: "0.8 s", "13 s", "4 min".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace plimsoll
