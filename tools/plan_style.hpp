#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "planner/plan.hpp"
#include "tools/terminal.hpp"

namespace plimsoll {

/// How a plan is shown as text.
struct View {
    std::uint32_t columns = 80;
    bool colour = false;
    bool unicode = true;  // box and block characters; ASCII otherwise
};

/// A view for the standard output: a terminal's width and colour; COLUMNS where it is none; ASCII
/// where the locale names another encoding than UTF-8.
[[nodiscard]] View standard_view();

/// How a class looks, in text and in pictures. Weights are blues, caches greens, scratch warm.
struct ClassStyle {
    std::string_view label;
    char letter;
    std::uint8_t colour;   // of the 256-colour palette
    std::string_view hex;  // in SVG
};
inline constexpr std::array<ClassStyle, kRegionClassCount> kClassStyles = {{
    {"dense weights", 'D', 25, "#1f5fa8"},
    {"expert weights", 'E', 74, "#5fa5d9"},
    {"KV cache", 'K', 36, "#1e9e7f"},
    {"MTP weights", 'M', 97, "#8a63c4"},
    {"MTP cache", 'm', 140, "#b79fe0"},
    {"fp16 cache", 'F', 107, "#86a83b"},
    {"workspace", 'W', 172, "#dd8a1f"},
    {"GEMM workspace", 'G', 179, "#e3b457"},
    {"logits", 'L', 167, "#d45c5c"},
    {"staging", 'S', 131, "#a6525b"},
    {"embedding", 'T', 67, "#4a7396"},
}};
[[nodiscard]] constexpr const ClassStyle& style_of(RegionClass cls) {
    return kClassStyles[static_cast<std::size_t>(cls)];
}

/// Parts of a device beside the classes, in the order of a map.
inline constexpr ClassStyle kUnusedStyle = {"unused", '.', 238, "#e8eaed"};
inline constexpr ClassStyle kReserveStyle = {"reserve", 'r', 242, "#c3c8cf"};
inline constexpr ClassStyle kOverheadStyle = {"driver", 'x', 246, "#8d949e"};
inline constexpr ClassStyle kElsewhereStyle = {"not available", '#', 250, "#5b616a"};

/// "FULL", and the same as a sentence: "fits in full".
[[nodiscard]] std::string_view verdict_title(Verdict verdict);
[[nodiscard]] std::string_view verdict_sentence(Verdict verdict);
[[nodiscard]] Style verdict_style(Verdict verdict);

}  // namespace plimsoll
