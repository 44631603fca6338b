#include "tools/plan_style.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace plimsoll {
namespace {

constexpr std::uint32_t kColumnsMin = 40;
constexpr std::uint32_t kColumnsMax = 160;  // wider than this, lines are hard to follow

/// The first variable that is set decides, as for the C library.
bool locale_is_utf8() {
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0') continue;
        std::string lower(value);
        std::transform(lower.begin(), lower.end(), lower.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
    }
    return true;
}

constexpr struct {
    std::string_view title;
    std::string_view sentence;
    Style style;
} kVerdicts[] = {
    {"FULL", "fits in full", Style::green},
    {"DEGRADED", "fits with less than was asked", Style::yellow},
    {"SPILLED", "fits with weights off the device", Style::yellow},
    {"NO FIT", "does not fit", Style::red},
};

}  // namespace

View standard_view() {
    const Terminal terminal = inspect_terminal(STDOUT_FILENO);
    View view{.columns = terminal.columns, .colour = terminal.colour, .unicode = locale_is_utf8()};
    if (const char* columns = std::getenv("COLUMNS"); !terminal.is_terminal && columns != nullptr)
        view.columns = static_cast<std::uint32_t>(std::strtoul(columns, nullptr, 10));
    view.columns = std::clamp(view.columns, kColumnsMin, kColumnsMax);
    return view;
}

std::string_view verdict_title(Verdict verdict) {
    return kVerdicts[static_cast<std::size_t>(verdict)].title;
}
std::string_view verdict_sentence(Verdict verdict) {
    return kVerdicts[static_cast<std::size_t>(verdict)].sentence;
}
Style verdict_style(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)].style; }

}  // namespace plimsoll
