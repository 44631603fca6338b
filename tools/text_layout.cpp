#include "tools/text_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/units.hpp"
#include "tools/terminal.hpp"

namespace plimsoll {
namespace {

std::string spaces_up_to(std::size_t columns, std::size_t taken) {
    return std::string(columns > taken ? columns - taken : 0, ' ');
}

}  // namespace

std::string padded(std::string_view text, std::size_t columns) {
    return std::string(text) + spaces_up_to(columns, display_columns(text));
}

std::string right_aligned(std::string_view text, std::size_t columns) {
    return spaces_up_to(columns, display_columns(text)).append(text);
}

std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
    std::vector<std::string> lines(1);
    std::size_t taken = 0;
    while (!text.empty()) {
        const std::size_t space = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, space);
        const std::size_t width = display_columns(word);
        if (taken != 0 && taken + 1 + width > columns) {
            lines.emplace_back();
            taken = 0;
        }
        if (taken != 0) lines.back() += ' ';
        lines.back() += word;
        taken += width + (taken != 0 ? 1 : 0);
        text.remove_prefix(std::min(space + 1, text.size()));
    }
    return lines;
}

std::string hanging(std::string_view first, std::string_view text, std::size_t columns) {
    const std::size_t indent = display_columns(first);
    std::string out(first);
    bool begun = false;
    for (const std::string& line :
         wrapped(text, std::max<std::size_t>(columns, indent + 20) - indent)) {
        if (begun) out += std::string(indent, ' ');
        out += line + "\n";
        begun = true;
    }
    return out;
}

std::vector<std::size_t> apportion(const std::vector<double>& sizes, std::size_t cells) {
    std::vector<std::size_t> out(sizes.size());
    const double total = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    if (total <= 0) return out;
    std::vector<double> missing(sizes.size());  // columns due less columns given
    std::size_t given = 0;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        const double due = sizes[index] / total * static_cast<double>(cells);
        out[index] = std::max<std::size_t>(static_cast<std::size_t>(due), sizes[index] > 0 ? 1 : 0);
        missing[index] = due - static_cast<double>(out[index]);
        given += out[index];
    }
    for (; given < cells; ++given) {
        const auto at = std::max_element(missing.begin(), missing.end()) - missing.begin();
        ++out[static_cast<std::size_t>(at)];
        missing[static_cast<std::size_t>(at)] -= 1;
    }
    // Minimal columns of small parts are taken from the widest.
    for (; given > cells; --given) --*std::max_element(out.begin(), out.end());
    return out;
}

std::string format_rate(double per_second) {
    if (per_second >= 100)
        return format_count(static_cast<std::uint64_t>(std::llround(per_second)));
    if (per_second >= 10) return fmt::format("{:.0f}", per_second);
    if (per_second >= 1) return fmt::format("{:.1f}", per_second);
    return fmt::format("{:.2f}", per_second);
}

std::string format_seconds(double seconds) {
    if (seconds < 10) return fmt::format("{:.1f} s", seconds);
    if (seconds < 120) return fmt::format("{:.0f} s", seconds);
    return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace plimsoll
