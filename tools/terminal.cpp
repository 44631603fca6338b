#include "tools/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/utf8.hpp"

namespace plimsoll {
namespace {

/// SGR parameters in the order of Style (ECMA-48 8.3.117).
constexpr std::string_view kStyleCodes[] = {"", "1", "2", "31", "32", "33", "34"};

struct CodePointRange {
    char32_t first, last;
};

/// Blocks of marks that take no column: those of the scripts our texts are likely to hold. The C
/// library's wcwidth would need the user's locale.
constexpr CodePointRange kZeroWidth[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x064B, 0x065F}, {0x200B, 0x200F},
    {0x20D0, 0x20FF}, {0x3099, 0x309A}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xE0100, 0xE01EF},
};

/// Blocks of East Asian Width W or F (Unicode Standard Annex 11), and of emoji.
constexpr CodePointRange kDoubleWidth[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0x33FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD},
};

template <std::size_t N>
bool in_ranges(char32_t code_point, const CodePointRange (&ranges)[N]) {
    for (const CodePointRange& range : ranges) {
        if (code_point >= range.first && code_point <= range.last) return true;
    }
    return false;
}

}  // namespace

Terminal inspect_terminal(int descriptor, const char* no_colour, const char* term) {
    Terminal out;
    out.is_terminal = isatty(descriptor) != 0;
    if (!out.is_terminal) return out;
    winsize size{};
    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) out.columns = size.ws_col;
    const bool refused = no_colour != nullptr && *no_colour != '\0';
    out.colour = !refused && term != nullptr && std::string_view(term) != "dumb";
    return out;
}

Terminal inspect_terminal(int descriptor) {
    return inspect_terminal(descriptor, std::getenv("NO_COLOR"), std::getenv("TERM"));
}

std::string styled(std::string_view text, Style style, const Terminal& terminal) {
    if (!terminal.colour || style == Style::plain) return std::string(text);
    std::string out = "\x1b[";
    out += kStyleCodes[static_cast<std::size_t>(style)];
    return out.append("m").append(text).append("\x1b[0m");
}

std::size_t display_columns(std::string_view text) {
    std::size_t columns = 0;
    while (!text.empty()) {
        const Utf8Char next = decode_utf8(text);
        if (next.size_bytes == 0) {
            columns += 1;  // shown as U+FFFD
            text.remove_prefix(next.invalid_bytes + next.truncated_bytes);
            continue;
        }
        if (in_ranges(next.code_point, kDoubleWidth)) {
            columns += 2;
        } else if (!in_ranges(next.code_point, kZeroWidth)) {
            columns += 1;
        }
        text.remove_prefix(next.size_bytes);
    }
    return columns;
}

}  // namespace plimsoll
