#include "tools/plan_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "planner/units.hpp"
#include "tools/plan_table.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

Terminal terminal_of(const View& view) { return {.colour = view.colour, .columns = view.columns}; }

std::string heading(std::string_view text, const View& view) {
    return "\n" + styled(text, Style::bold, terminal_of(view)) + "\n";
}

std::string header(const Plan& plan, const View& view) {
    const std::string title = plan_title(plan);
    const std::string_view verdict = verdict_title(plan.verdict);
    const Grant& grant = plan.grant;
    const std::size_t taken = display_columns(title) + verdict.size();
    const std::string gap(view.columns > taken ? view.columns - taken : 2, ' ');
    std::string out = styled(title, Style::bold, terminal_of(view)) + gap +
                      styled(verdict, verdict_style(plan.verdict), terminal_of(view)) + "\n";
    std::string summary = fmt::format(
        "{}{} context {}, prefill chunk {}, {} cache rows, {}", verdict_sentence(plan.verdict),
        plan.refusal ? "; the least that was allowed:" : ":", format_count(grant.context_tokens),
        format_count(grant.chunk_tokens), kv_format_name(grant.kv_format),
        !grant.mtp          ? "no drafts"
        : grant.drafts == 1 ? "1 draft"
                            : fmt::format("{} drafts", grant.drafts));
    if (grant.sessions > 1) summary += fmt::format(", {} sessions", grant.sessions);
    if (grant.precise) summary += ", precise";
    return out + hanging("", summary, view.columns);
}

/// Feature values are JSON; a quoted one is text.
std::string unquoted(const std::string& value) {
    const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    return quoted ? value.substr(1, value.size() - 2) : value;
}

std::string source_words(Source source) {
    return source == Source::cli ? "(command line) " : source == Source::yaml ? "(profile) " : "";
}

std::string feature_lines(const Feature& feature, const View& view) {
    constexpr std::size_t kNameColumns = 16;
    constexpr std::size_t kValueColumns = 22;
    constexpr std::size_t kNarrow = 72;  // below this the reason has lines of its own
    const bool kept = feature.requested == feature.granted;
    const std::string granted = feature_value(feature, feature.granted);
    const std::string value =
        kept ? granted
             : fmt::format("{} {} {}", feature_value(feature, feature.requested),
                           view.unicode ? "→" : "->", granted);
    std::string name = feature.name;
    std::replace(name.begin(), name.end(), '_', ' ');
    std::string first = padded("  " + name, kNameColumns) + padded(value, kValueColumns);
    const std::string reason = source_words(feature.source) + feature.reason;
    // A long value still leaves a gap before the reason.
    std::string out;
    if (view.columns < kNarrow || display_columns(first) > kNameColumns + kValueColumns) {
        first.erase(first.find_last_not_of(' ') + 1);
        out = first + "\n" + hanging("      ", reason, view.columns);
    } else {
        out = hanging(first + " ", reason, view.columns);
    }
    return kept ? out
                : styled(out.substr(0, out.size() - 1), Style::yellow, terminal_of(view)) + "\n";
}

std::string workspace_lines(const Plan& plan, const View& view) {
    std::string out;
    for (const DevicePlan& device : plan.devices) {
        if (device.workspace_packed_bytes == 0) continue;
        const std::uint64_t over_bytes =
            device.workspace_packed_bytes - device.workspace_lower_bound_bytes;
        const std::string above =
            over_bytes == 0
                ? "exactly the lower bound: no packing is smaller"
                : fmt::format("{:.2f} % above the lower bound of {}",
                              100.0 * static_cast<double>(over_bytes) /
                                  static_cast<double>(device.workspace_lower_bound_bytes),
                              format_mib(device.workspace_lower_bound_bytes));
        const std::string where =
            plan.devices.size() > 1 ? fmt::format(" on {}", device.facts.name) : "";
        out += hanging("  ",
                       fmt::format("{} buffers in {}{}, {}", device.workspace.size(),
                                   format_mib(device.workspace_packed_bytes), where, above),
                       view.columns);
    }
    return out;
}

/// Where the prediction's rates are from: a device file may carry what was measured on its card.
std::string_view basis_of(const Plan& plan) {
    const auto is_measured = [](const DevicePlan& device) {
        return device.facts.decode_bandwidth_share > 0 && device.facts.prefill_compute_share > 0;
    };
    return std::all_of(plan.devices.begin(), plan.devices.end(), is_measured)
               ? "by rates measured on such a device"
               : "predicted, not measured";
}

std::string prediction_lines(const Plan& plan, const View& view) {
    const Prediction& predicted = plan.predicted;
    return hanging(
        "  ",
        fmt::format("about {} tokens/s, bound by {}; prefill {} tokens/s; loads in {}; {}",
                    format_rate(predicted.decode_tokens_per_s), predicted.bound,
                    format_rate(predicted.prefill_tokens_per_s),
                    format_seconds(predicted.load_seconds), basis_of(plan)),
        view.columns);
}

std::string suggestion_lines(std::span<const Suggestion> suggestions, const View& view) {
    std::string out;
    for (const Suggestion& suggestion : suggestions) {
        const std::string first = padded(fmt::format("  {}", suggestion.option), 26) + " ";
        const std::string text =
            fmt::format("{}: {}", suggestion.text, verdict_sentence(suggestion.verdict));
        if (display_columns(first) > 27 || view.columns < 60)
            out += fmt::format("  {}\n", suggestion.option) + hanging("      ", text, view.columns);
        else
            out += hanging(first, text, view.columns);
    }
    return out;
}

std::string refusal_lines(const Refusal& refusal, const View& view) {
    return hanging("  ",
                   fmt::format("{} is short by {} (the least the plan needs there is {}; {})",
                               refusal.pool, format_mib(align_up(refusal.short_bytes, kMiB)),
                               format_mib(refusal.floor_bytes), refusal.reason),
                   view.columns);
}

}  // namespace

std::string plan_title(const Plan& plan) {
    const std::string draft_head =
        plan.mtp_model && plan.grant.mtp ? fmt::format(" with {}", plan.mtp_model->name) : "";
    return fmt::format("{}{} on {}", plan.model.name, draft_head, plan.machine_name);
}

std::string feature_value(const Feature& feature, const std::string& value) {
    if (value == "true") return "on";
    if (value == "false") return "off";
    std::uint64_t number = 0;
    const char* end = value.data() + value.size();
    if (std::from_chars(value.data(), end, number).ptr != end || value.empty())
        return unquoted(value);
    return feature.name == "fp16_cache" ? format_bytes(number) : format_count(number);
}

std::string plan_map(const Plan& plan, const View& view) { return tier_map(tiers_of(plan), view); }

std::string plan_text(const Plan& plan, std::span<const Suggestion> alternatives,
                      const View& view) {
    std::string out = header(plan, view);
    if (plan.refusal) {
        // Nothing is placed, so there is nothing to tabulate.
        out += heading("Why not", view) + refusal_lines(*plan.refusal, view);
        if (!plan.refusal->suggestions.empty())
            out +=
                heading("What would fit", view) + suggestion_lines(plan.refusal->suggestions, view);
    } else {
        const std::vector<Tier> tiers = tiers_of(plan);
        out += "\n" + class_table(tiers, view) + "\n" + tier_map(tiers, view);
        out += heading("Decisions", view);
        for (const Feature& feature : plan.features) out += feature_lines(feature, view);
        out += heading("Speed", view) + prediction_lines(plan, view);
        out += heading("Workspace", view) + workspace_lines(plan, view);
    }
    if (!plan.notes.empty()) out += heading("Notes", view);
    for (const std::string& note : plan.notes)
        out += hanging(view.unicode ? "  · " : "  - ", note, view.columns);
    if (plan.host.available_bytes != 0)
        out += hanging(view.unicode ? "  · " : "  - ",
                       fmt::format("host memory: {} available by {}, {} of it may be planned",
                                   format_mib(plan.host.available_bytes),
                                   plan.host.available_source, format_mib(plan.host.budget_bytes)),
                       view.columns);
    if (!alternatives.empty())
        out += heading("What would change it", view) + suggestion_lines(alternatives, view);
    return out;
}

}  // namespace plimsoll
