#include "tools/plan_diff.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/units.hpp"
#include "tools/plan_table.hpp"
#include "tools/plan_view.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

/// One line of the comparison: a name and its two values.
struct DiffRow {
    std::string name;
    std::string before;
    std::string after;
    std::string change;  // signed, where both are sizes
};

std::string signed_mib(std::uint64_t before, std::uint64_t after) {
    return fmt::format("{}{}", after < before ? "-" : "+",
                       format_mib(after < before ? before - after : after - before));
}

void add(std::vector<DiffRow>& rows, std::string name, std::string before, std::string after) {
    if (before != after) rows.push_back({std::move(name), std::move(before), std::move(after), ""});
}

void add_sizes(std::vector<DiffRow>& rows, std::string name, std::uint64_t before,
               std::uint64_t after) {
    if (before == after) return;
    // Sizes that differ by less than the unit of the table are shown to the byte.
    const bool fine = format_mib(before) == format_mib(after);
    const auto shown = [&](std::uint64_t bytes) {
        return fine ? format_count(bytes) + " B" : format_mib(bytes);
    };
    const std::string change =
        fine ? fmt::format("{}{} B", after < before ? "-" : "+",
                           format_count(after < before ? before - after : after - before))
             : signed_mib(before, after);
    rows.push_back({std::move(name), shown(before), shown(after), change});
}

const Tier* find_tier(const std::vector<Tier>& tiers, const std::string& name) {
    const auto at = std::find_if(tiers.begin(), tiers.end(),
                                 [&](const Tier& tier) { return tier.name == name; });
    return at == tiers.end() ? nullptr : &*at;
}

void compare_tiers(std::vector<DiffRow>& rows, const std::vector<Tier>& before,
                   const std::vector<Tier>& after) {
    std::vector<std::string> names;
    for (const std::vector<Tier>* tiers : {&before, &after})
        for (const Tier& tier : *tiers)
            if (std::find(names.begin(), names.end(), tier.name) == names.end())
                names.push_back(tier.name);
    for (const std::string& name : names) {
        const Tier nothing{.name = name, .by_class = std::vector<std::uint64_t>(kRegionClassCount)};
        const Tier* old_tier = find_tier(before, name);
        const Tier* new_tier = find_tier(after, name);
        const Tier& a = old_tier == nullptr ? nothing : *old_tier;
        const Tier& b = new_tier == nullptr ? nothing : *new_tier;
        for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
            add_sizes(rows, fmt::format("{} {}", name, kClassStyles[cls].label), a.by_class[cls],
                      b.by_class[cls]);
        add_sizes(rows, name + " planned", a.planned_bytes, b.planned_bytes);
        add_sizes(rows, name + " budget", a.budget_bytes, b.budget_bytes);
    }
}

void compare_features(std::vector<DiffRow>& rows, const Plan& before, const Plan& after) {
    for (const Feature& old_feature : before.features) {
        const auto at =
            std::find_if(after.features.begin(), after.features.end(),
                         [&](const Feature& feature) { return feature.name == old_feature.name; });
        const std::string granted =
            at == after.features.end() ? "-" : feature_value(*at, at->granted);
        std::string name = old_feature.name;
        std::replace(name.begin(), name.end(), '_', ' ');
        add(rows, name, feature_value(old_feature, old_feature.granted), granted);
    }
}

std::string refusal_words(const Plan& plan) {
    return plan.refusal
               ? fmt::format("short by {}", format_mib(align_up(plan.refusal->short_bytes, kMiB)))
               : "-";
}

std::vector<DiffRow> compare(const Plan& before, const Plan& after) {
    std::vector<DiffRow> rows;
    add(rows, "model", before.model.name, after.model.name);
    add(rows, "model fingerprint", fmt::format("{:016x}", before.model.fingerprint),
        fmt::format("{:016x}", after.model.fingerprint));
    add(rows, "draft head", before.mtp_model ? before.mtp_model->name : "-",
        after.mtp_model ? after.mtp_model->name : "-");
    add(rows, "machine", before.machine_name, after.machine_name);
    add(rows, "verdict", std::string(verdict_name(before.verdict)),
        std::string(verdict_name(after.verdict)));
    add(rows, "refusal", refusal_words(before), refusal_words(after));
    compare_features(rows, before, after);
    add(rows, "experts on host", format_count(before.host.experts),
        format_count(after.host.experts));
    add(rows, "experts in file", format_count(before.nvme.experts),
        format_count(after.nvme.experts));
    compare_tiers(rows, tiers_of(before), tiers_of(after));
    const auto rates = [&](std::string name, double Prediction::*field) {
        add(rows, std::move(name), format_rate(before.predicted.*field),
            format_rate(after.predicted.*field));
    };
    rates("decode tokens/s", &Prediction::decode_tokens_per_s);
    rates("prefill tokens/s", &Prediction::prefill_tokens_per_s);
    add(rows, "decode bound by", before.predicted.bound, after.predicted.bound);
    return rows;
}

}  // namespace

std::string plan_diff(const Plan& before, const Plan& after, const View& view) {
    const std::vector<DiffRow> rows = compare(before, after);
    if (rows.empty())
        return before == after ? "The plans are the same.\n"
                               : "The plans differ only in offsets, reasons or notes.\n";
    std::size_t name_columns = 0, before_columns = 6, after_columns = 5;
    for (const DiffRow& row : rows) {
        name_columns = std::max(name_columns, display_columns(row.name));
        before_columns = std::max(before_columns, display_columns(row.before));
        after_columns = std::max(after_columns, display_columns(row.after));
    }
    const auto line = [&](const DiffRow& row) {
        std::string text = padded(row.name, name_columns) + "  " +
                           right_aligned(row.before, before_columns) +
                           (view.unicode ? " → " : " > ") + right_aligned(row.after, after_columns);
        if (!row.change.empty()) text += "  " + row.change;
        return text + "\n";
    };
    const Terminal terminal{.colour = view.colour};
    std::string head = line({"", "before", "after", ""});
    head.pop_back();
    std::string out = styled(head, Style::bold, terminal) + "\n";
    for (const DiffRow& row : rows) out += line(row);
    return out;
}

}  // namespace plimsoll
