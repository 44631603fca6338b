#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/utf8.hpp"

namespace plimsoll {

/// The printable code point that stands for a byte in token strings and merges (byte-level BPE as
/// in GPT-2): bytes that are printable Latin-1 stand for themselves, the other 68 take U+0100,
/// U+0101, … in increasing order.
[[nodiscard]] constexpr bool byte_stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
           (byte >= 0xAE && byte <= 0xFF);
}

inline constexpr std::size_t kByteAlphabetEnd = 0x100 + 68;  // one past the last code point in use

/// [byte] -> code point.
inline constexpr std::array<char32_t, 256> kByteToCodePoint = [] {
    std::array<char32_t, 256> table{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        table[byte] = byte_stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    }
    return table;
}();

/// [code point] -> byte, -1 where the code point stands for none.
inline constexpr std::array<std::int16_t, kByteAlphabetEnd> kCodePointToByte = [] {
    std::array<std::int16_t, kByteAlphabetEnd> table{};
    table.fill(-1);
    for (unsigned byte = 0; byte < 256; ++byte) {
        table[kByteToCodePoint[byte]] = static_cast<std::int16_t>(byte);
    }
    return table;
}();
static_assert(kByteToCodePoint[' '] == U'\u0120');
static_assert(kByteToCodePoint[0x7F] == U'\u0121');
static_assert(kByteToCodePoint[0xAD] == U'\u0143');

/// The bytes that `symbols` (UTF-8) stands for, or nothing where it is not UTF-8 or leaves the
/// alphabet.
[[nodiscard]] inline std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
    std::string bytes;
    bytes.reserve(symbols.size());
    while (!symbols.empty()) {
        const Utf8Char next = decode_utf8(symbols);
        if (next.size_bytes == 0 || next.code_point >= kByteAlphabetEnd) return std::nullopt;
        const std::int16_t byte = kCodePointToByte[next.code_point];
        if (byte < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(byte));
        symbols.remove_prefix(next.size_bytes);
    }
    return bytes;
}

/// The inverse of `bytes_of_symbols`: any bytes to UTF-8 text of the alphabet.
[[nodiscard]] inline std::string symbols_of_bytes(std::string_view bytes) {
    std::string symbols;
    symbols.reserve(bytes.size() * 2);
    for (const char byte : bytes) {
        append_utf8(kByteToCodePoint[static_cast<unsigned char>(byte)], symbols);
    }
    return symbols;
}

}  // namespace plimsoll
