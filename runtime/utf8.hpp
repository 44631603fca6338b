#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

/// U+FFFD in UTF-8: what a reader sees in place of bytes that are no text.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// One code point read from the front of some bytes.
struct Utf8Char {
    char32_t code_point = 0;
    std::uint8_t size_bytes = 0;  // 1 to 4; 0 where the bytes do not begin with a whole code point

    /// Where size_bytes is 0: bytes that may still become one (`truncated`), or that never will
    /// (`invalid`: the longest beginning of a sequence, at least 1, as Unicode 15 section 3.9
    /// recommends to replace at once).
    std::uint8_t truncated_bytes = 0;
    std::uint8_t invalid_bytes = 0;
};

/// Reads the first code point of non-empty `text`. Overlong forms, surrogates and values above
/// U+10FFFF are invalid.
[[nodiscard]] Utf8Char decode_utf8(std::string_view text);

/// Appends one code point (a scalar value) to `out`.
void append_utf8(char32_t code_point, std::string& out);

/// Length of the longest valid beginning of `text`, in bytes.
[[nodiscard]] std::size_t valid_utf8_prefix_bytes(std::string_view text);

/// Turns the byte stream of decoded tokens into text that can be shown at any moment: a sequence
/// that is cut short is held back until the rest comes, and what can never be text becomes U+FFFD.
class Utf8Stream {
public:
    /// Appends to `out` all text that `bytes` completes.
    void push(std::string_view bytes, std::string& out);

    /// Appends what is held back, replaced by one U+FFFD, and is ready for another stream.
    void finish(std::string& out);

private:
    std::string held_;  // at most 3 bytes between calls
};

}  // namespace plimsoll
