#include "tools/plan_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/units.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kNameColumns = 17;
constexpr std::size_t kMibColumns = 9;
constexpr std::size_t kShareColumns = 8;
constexpr std::size_t kTierColumns = kMibColumns + kShareColumns;
constexpr std::size_t kBarCellsMin = 8;

std::string mib(std::uint64_t bytes) {
    std::string text = format_mib(bytes);
    return text.substr(0, text.find(' '));
}

std::string share(std::uint64_t bytes, std::uint64_t whole_bytes) {
    if (whole_bytes == 0 || bytes == 0) return "";
    const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(whole_bytes);
    return percent < 0.05 ? "<0.1 %" : fmt::format("{:.1f} %", percent);
}

std::string cell(const Tier& tier, std::uint64_t bytes, bool of_budget) {
    if (tier.is_file) return right_aligned(bytes == 0 ? "-" : mib(bytes), kTierColumns - 1) + " ";
    const std::string number = bytes == 0 ? "-" : bytes < kMiB / 2 ? "<1" : mib(bytes);
    return right_aligned(number, kMibColumns) +
           right_aligned(of_budget ? share(bytes, tier.budget_bytes) : "", kShareColumns);
}

/// The rows below the classes; those that are 0 in every tier are left out.
constexpr struct {
    const char* name;
    std::uint64_t Tier::*field;
    bool always;
    bool of_budget;  // a part of it, so that a share makes sense
} kSumRows[] = {
    {"planned", &Tier::planned_bytes, true, true},
    {"unused", &Tier::unused_bytes, true, true},
    {"reserve", &Tier::reserve_bytes, false, false},
    {"driver overhead", &Tier::overhead_bytes, false, false},
    {"not available", &Tier::elsewhere_bytes, false, false},
    {"total", &Tier::total_bytes, true, false},
};

std::string rule(std::size_t columns, const View& view) {
    std::string out;
    for (std::size_t at = 0; at < columns; ++at) out += view.unicode ? "─" : "-";
    return out + "\n";
}

std::string row(std::string_view name, std::span<const Tier> tiers, bool of_budget,
                auto&& bytes_of) {
    std::string line = padded(name, kNameColumns);
    for (const Tier& tier : tiers) line += cell(tier, bytes_of(tier), of_budget);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

std::string table_of(std::span<const Tier> tiers, const View& view) {
    const Terminal terminal{.colour = view.colour};
    std::string head = padded("MiB", kNameColumns);
    for (const Tier& tier : tiers)
        head += right_aligned(tier.name, tier.is_file ? kTierColumns - 1 : kMibColumns) +
                (tier.is_file ? " " : right_aligned("budget", kShareColumns));
    head.erase(head.find_last_not_of(' ') + 1);
    std::string out = styled(head, Style::bold, terminal) + "\n";
    const std::size_t columns = kNameColumns + tiers.size() * kTierColumns;
    out += rule(columns, view);
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls) {
        const auto bytes_of = [cls](const Tier& tier) { return tier.by_class[cls]; };
        if (std::all_of(tiers.begin(), tiers.end(),
                        [&](const Tier& tier) { return bytes_of(tier) == 0; }))
            continue;
        out += row(kClassStyles[cls].label, tiers, true, bytes_of);
    }
    out += rule(columns, view);
    for (const auto& sum : kSumRows) {
        const auto bytes_of = [&](const Tier& tier) {
            return tier.is_file && sum.field == &Tier::unused_bytes ? 0 : tier.*sum.field;
        };
        const bool empty = std::all_of(tiers.begin(), tiers.end(),
                                       [&](const Tier& tier) { return bytes_of(tier) == 0; });
        if (!empty || sum.always) out += row(sum.name, tiers, sum.of_budget, bytes_of);
    }
    return out;
}

Tier device_tier(const DevicePlan& device) {
    Tier tier{.name = device.facts.name,
              .by_class = {device.arena.by_class.begin(), device.arena.by_class.end()},
              .planned_bytes = device.arena.planned_bytes,
              .unused_bytes = device.slack_bytes(),
              .budget_bytes = device.budget_bytes,
              .reserve_bytes = device.free_bytes - device.budget_bytes,
              .overhead_bytes = device.vram_bytes - device.free_bytes,
              .elsewhere_bytes = saturating_sub(device.facts.total_bytes, device.vram_bytes)};
    tier.total_bytes = device.vram_bytes + tier.elsewhere_bytes;
    return tier;
}

std::string coloured_cells(const TierPart& part, std::size_t cells) {
    const std::string name(part.style->label);
    std::string text(cells, ' ');
    if (name.size() + 2 <= cells)
        text.replace((cells - name.size()) / 2, name.size(), name);
    else
        text[cells / 2] = part.style->letter;
    // Light text on the darker half of the palette's rows.
    return fmt::format("\x1b[48;5;{};38;5;231m{}\x1b[0m", part.style->colour, text);
}

std::string bar(const std::vector<TierPart>& parts, std::size_t cells, const View& view) {
    std::vector<double> sizes;
    for (const TierPart& part : parts) sizes.push_back(static_cast<double>(part.size_bytes));
    const std::vector<std::size_t> widths = apportion(sizes, cells);
    std::string out;
    for (std::size_t index = 0; index < parts.size(); ++index) {
        if (widths[index] == 0) continue;
        out += view.colour ? coloured_cells(parts[index], widths[index])
                           : std::string(widths[index], parts[index].style->letter);
    }
    return out;
}

std::string legend(const std::vector<const ClassStyle*>& styles, const View& view) {
    std::string out, line;
    std::size_t taken = 0;
    for (const ClassStyle* style : styles) {
        const std::size_t width = 2 + style->label.size() + 2;
        if (taken != 0 && taken + width > view.columns) {
            out += line + "\n";
            line.clear();
            taken = 0;
        }
        line += view.colour
                    ? fmt::format("\x1b[48;5;{};38;5;231m{}\x1b[0m", style->colour, style->letter)
                    : std::string(1, style->letter);
        line += fmt::format(" {}  ", style->label);
        taken += width;
    }
    out += line;
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
}

}  // namespace

std::vector<Tier> tiers_of(const Plan& plan) {
    std::vector<Tier> tiers;
    for (const DevicePlan& device : plan.devices) tiers.push_back(device_tier(device));
    const HostPlan& host = plan.host;
    if (host.arena.planned_bytes != 0 || host.available_bytes != 0) {
        tiers.push_back({.name = "host",
                         .by_class = {host.arena.by_class.begin(), host.arena.by_class.end()},
                         .planned_bytes = host.arena.planned_bytes,
                         .unused_bytes = host.budget_bytes - host.arena.planned_bytes,
                         .budget_bytes = host.budget_bytes,
                         .reserve_bytes = host.available_bytes - host.budget_bytes,
                         .total_bytes = host.available_bytes});
    }
    if (plan.nvme.bytes != 0) {
        Tier file{.name = "file",
                  .by_class = std::vector<std::uint64_t>(kRegionClassCount),
                  .planned_bytes = plan.nvme.bytes,
                  .total_bytes = plan.nvme.bytes,
                  .is_file = true};
        file.by_class[static_cast<std::size_t>(RegionClass::expert_weights)] = plan.nvme.bytes;
        tiers.push_back(std::move(file));
    }
    return tiers;
}

std::vector<TierPart> parts_of(const Tier& tier) {
    std::vector<TierPart> parts;
    const auto add = [&](const ClassStyle& style, std::uint64_t bytes) {
        if (bytes != 0) parts.push_back({&style, bytes});
    };
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
        add(kClassStyles[cls], tier.by_class[cls]);
    add(kUnusedStyle, tier.unused_bytes);
    add(kReserveStyle, tier.reserve_bytes);
    add(kOverheadStyle, tier.overhead_bytes);
    add(kElsewhereStyle, tier.elsewhere_bytes);
    return parts;
}

std::string class_table(const std::vector<Tier>& tiers, const View& view) {
    const std::size_t fitting =
        std::max<std::size_t>(1, (view.columns - kNameColumns) / kTierColumns);
    std::string out;
    for (std::size_t first = 0; first < tiers.size(); first += fitting) {
        if (first != 0) out += "\n";
        const std::size_t count = std::min(fitting, tiers.size() - first);
        out += table_of(std::span(tiers).subspan(first, count), view);
    }
    return out;
}

std::string tier_map(const std::vector<Tier>& tiers, const View& view) {
    std::string out;
    std::vector<const ClassStyle*> used;
    for (const Tier& tier : tiers) {
        if (tier.is_file || tier.total_bytes == 0) continue;
        const std::string name = padded(tier.name, 7);
        const std::string size = right_aligned(format_bytes(tier.total_bytes), 10);
        const std::vector<TierPart> parts = parts_of(tier);
        // A plan from a file may name a device at any length: its line is wider then.
        const std::size_t frame = name.size() + 3 + size.size();
        const std::size_t cells = std::max<std::size_t>(view.columns, frame + kBarCellsMin) - frame;
        out += fmt::format("{} {}{}{}{}\n", name, view.colour ? "" : "[", bar(parts, cells, view),
                           view.colour ? "" : "]", size);
        for (const TierPart& part : parts)
            if (std::find(used.begin(), used.end(), part.style) == used.end())
                used.push_back(part.style);
    }
    return used.empty() ? out : out + legend(used, view);
}

}  // namespace plimsoll
