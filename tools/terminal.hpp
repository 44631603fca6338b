#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

/// What a stream can show. Asked once, then handed down.
struct Terminal {
    bool is_terminal = false;
    bool colour = false;
    std::uint32_t columns = 80;  // of a terminal; 80 where the stream is none or does not say
};

/// `descriptor` is a stream's, such as 2 for stderr. Colour is on for terminals that have it,
/// unless `no_colour` (the value of NO_COLOR, null where unset) is set and not empty, as
/// no-color.org asks, or `term` (TERM) is "dumb".
[[nodiscard]] Terminal inspect_terminal(int descriptor, const char* no_colour, const char* term);

/// The same with this process's environment.
[[nodiscard]] Terminal inspect_terminal(int descriptor);

enum class Style : std::uint8_t { plain, bold, dim, red, green, yellow, blue };

/// `text` in a style, as it is where the terminal has no colour.
[[nodiscard]] std::string styled(std::string_view text, Style style, const Terminal& terminal);

/// How many columns `text` (UTF-8, without escape sequences) takes: two for wide East Asian
/// characters and emoji, none for combining marks.
[[nodiscard]] std::size_t display_columns(std::string_view text);

}  // namespace plimsoll
