#include "tools/fit_devices.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/units.hpp"
#include "tools/environment.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

std::uint64_t fp16_bytes(const Plan& plan) {
    std::uint64_t sum = 0;
    for (const DevicePlan& device : plan.devices)
        sum += device.arena.bytes_of(RegionClass::fp16_cache);
    return sum;
}

std::string gib(std::uint64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

/// Columns by importance: those at the end go first where the view is narrow.
constexpr struct {
    const char* title;
    bool right;
    std::string (*value)(const Plan& plan);
} kColumns[] = {
    {"verdict", false, [](const Plan& p) { return std::string(verdict_name(p.verdict)); }},
    {"context", true, [](const Plan& p) { return format_count(p.grant.context_tokens); }},
    {"tok/s", true, [](const Plan& p) { return format_rate(p.predicted.decode_tokens_per_s); }},
    {"experts", true, [](const Plan& p) { return format_count(p.experts_on_devices()); }},
    {"host", true, [](const Plan& p) { return format_count(p.host.experts); }},
    {"file", true, [](const Plan& p) { return format_count(p.nvme.experts); }},
    {"mtp", false, [](const Plan& p) { return std::string(p.grant.mtp ? "on" : "off"); }},
    {"fp16 GiB", true, [](const Plan& p) { return gib(fp16_bytes(p)); }},
    {"bound", false, [](const Plan& p) { return p.predicted.bound; }},
    {"prefill/s", true,
     [](const Plan& p) { return format_rate(p.predicted.prefill_tokens_per_s); }},
};

std::string cell_of(const Plan& plan, std::size_t column) {
    if (plan.refusal && column != 0)
        return column == 1
                   ? fmt::format("-{} MiB", format_count(ceil_div(plan.refusal->short_bytes, kMiB)))
                   : "";
    return kColumns[column].value(plan);
}

}  // namespace

Result<std::vector<DevicePlanRow>> plan_every_device(PlanInputs& inputs) {
    std::vector<DevicePlanRow> rows;
    for (const std::string& name : device_names(inputs.config_dir)) {
        inputs.request.device.set(name, Source::cli);
        Result<MachineFacts> machine = machine_of(inputs.request, inputs.config_dir);
        if (!machine) return machine.error();
        if (names_disk(inputs.request))
            machine->nvme_read_bytes_per_s = inputs.machine.nvme_read_bytes_per_s;
        inputs.machine = std::move(*machine);
        Result<Plan> plan = plan_of(inputs);
        if (!plan)
            return Error{plan.error().kind, fmt::format("{}: {}", name, plan.error().message)};
        rows.push_back({name, std::move(*plan)});
    }
    if (rows.empty())
        return Error{ErrorKind::usage,
                     fmt::format("{}/devices holds no device file", inputs.config_dir)};
    return rows;
}

std::string device_rows_text(const PlanInputs& inputs, const std::vector<DevicePlanRow>& rows,
                             const View& view) {
    const Terminal terminal{.colour = view.colour};
    std::size_t name_columns = 6;
    for (const DevicePlanRow& row : rows) name_columns = std::max(name_columns, row.device.size());
    std::string title = padded("device", name_columns);
    std::vector<std::string> lines(rows.size());
    for (std::size_t at = 0; at < rows.size(); ++at)
        lines[at] = padded(rows[at].device, name_columns);
    std::size_t taken = name_columns;
    for (std::size_t column = 0; column < std::size(kColumns); ++column) {
        std::size_t width = std::string_view(kColumns[column].title).size();
        for (const DevicePlanRow& row : rows)
            width = std::max(width, cell_of(row.plan, column).size());
        taken += 2 + width;
        if (taken > view.columns) break;
        const auto aligned = [&](std::string_view text) {
            return "  " +
                   (kColumns[column].right ? right_aligned(text, width) : padded(text, width));
        };
        title += aligned(kColumns[column].title);
        for (std::size_t at = 0; at < rows.size(); ++at) {
            const std::string cell = aligned(cell_of(rows[at].plan, column));
            lines[at] +=
                column == 0 ? styled(cell, verdict_style(rows[at].plan.verdict), terminal) : cell;
        }
    }
    std::string out = fmt::format(
        "{} on every card: {} experts, host memory {}\n", inputs.model.name,
        format_count(rows[0].plan.experts_total),
        inputs.request.host_bytes.value
            ? fmt::format("{} (--host-mem)", format_bytes(*inputs.request.host_bytes.value))
            : "of this machine; --host-mem names another");
    out = hanging("", out.substr(0, out.size() - 1), view.columns) + "\n";
    out += styled(title, Style::bold, terminal) + "\n";
    for (std::string& line : lines) {
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
    return out;
}

std::string device_rows_json(const std::vector<DevicePlanRow>& rows) {
    std::string out = "[\n";
    for (const DevicePlanRow& row : rows) {
        std::string plan = plan_to_json(row.plan);
        plan.pop_back();
        out += fmt::format("{{\"device\": \"{}\", \"plan\": {}}}{}\n", row.device, plan,
                           &row == &rows.back() ? "" : ",");
    }
    return out + "]\n";
}

}  // namespace plimsoll
