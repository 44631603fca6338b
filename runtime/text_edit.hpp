#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

/// `text` with every `from` (not empty) replaced by `to`, left to right.
[[nodiscard]] inline std::string replace_all(std::string_view text, std::string_view from,
                                             std::string_view to) {
    std::string out;
    for (std::size_t at = 0; (at = text.find(from)) != std::string_view::npos;) {
        out.append(text.substr(0, at)).append(to);
        text.remove_prefix(at + from.size());
    }
    return out.append(text);
}

/// Whether JSON text opens more than `levels` arrays and objects inside each other. To be asked
/// before the text is parsed and printed by a library that recurses.
[[nodiscard]] inline bool json_nests_deeper(std::string_view json, int levels) {
    int depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (in_string && c == '\\') {
            ++i;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '[' || c == '{')) {
            if (++depth > levels) return true;
        } else if (!in_string && (c == ']' || c == '}')) {
            --depth;
        }
    }
    return false;
}

/// What we read of JSON that users and models write.
inline constexpr int kJsonLevelsMax = 64;

}  // namespace plimsoll
