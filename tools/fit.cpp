#include "tools/fit.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/fit_devices.hpp"
#include "tools/plan_svg.hpp"
#include "tools/plan_view.hpp"
#include "tools/planning.hpp"
#include "tools/run_plan.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

struct FitOptions {
    PlanningOptions planning;
    bool json = false;
    bool all_devices = false;
    std::optional<std::string> svg_path;
};

/// A plan and what could be changed about it.
struct Fit {
    Plan plan;
    std::vector<Suggestion> alternatives;
};

Result<Fit> saved_fit(const PlanningOptions& options) {
    if (options.model)
        return Error{ErrorKind::usage,
                     fmt::format("--plan names its own model: leave '{}' out", *options.model)};
    Result<Plan> plan = load_plan(*options.plan_path);
    if (!plan) return plan.error();
    return Fit{std::move(*plan), {}};
}

Result<Fit> fresh_fit(const FitOptions& options) {
    const Result<PlanInputs> inputs =
        read_plan_inputs(options.planning, DefaultDevice::visible_gpus);
    if (!inputs) return inputs.error();
    for (const std::string& note : inputs->notes) fmt::print(stderr, "{}\n", note);
    Result<Plan> plan = plan_of(*inputs);
    if (!plan) return plan.error();
    Fit fit{std::move(*plan), {}};
    if (!options.json) fit.alternatives = alternatives_to(fit.plan, *inputs);
    return fit;
}

/// Status of a plan that was made and shown.
Status outcome(const Plan& plan, bool strict) {
    if (plan.refusal) return refusal_error(plan);
    if (strict && plan.verdict != Verdict::full)
        return Error{ErrorKind::not_strict, fmt::format("the plan is {} and --strict asks for full",
                                                        verdict_name(plan.verdict))};
    return ok_status();
}

Status fit_all_devices(const FitOptions& options) {
    for (const auto& [given, name] : {std::pair(options.planning.device.has_value(), "--device"),
                                      {options.planning.plan_path.has_value(), "--plan"},
                                      {options.planning.output_path.has_value(), "-o"},
                                      {options.svg_path.has_value(), "--svg"}})
        if (given)
            return Error{ErrorKind::usage,
                         fmt::format("--all-devices and {} exclude each other", name)};
    Result<PlanInputs> inputs = read_plan_inputs(options.planning, DefaultDevice::cpu);
    if (!inputs) return inputs.error();
    const Result<std::vector<DevicePlanRow>> rows = plan_every_device(*inputs);
    if (!rows) return rows.error();
    return print_text(options.json ? device_rows_json(*rows)
                                   : device_rows_text(*inputs, *rows, standard_view()));
}

Status fit(const FitOptions& options) {
    if (options.all_devices) return fit_all_devices(options);
    const Result<Fit> fit =
        options.planning.plan_path ? saved_fit(options.planning) : fresh_fit(options);
    if (!fit) return fit.error();
    const Plan& plan = fit->plan;
    if (options.planning.output_path) {
        const Status saved = write_text_file(*options.planning.output_path, plan_to_yaml(plan));
        if (!saved) return saved;
    }
    if (options.svg_path) {
        const Status drawn = write_text_file(*options.svg_path, plan_svg(plan));
        if (!drawn) return drawn;
    }
    const Status shown = print_text(
        options.json ? plan_to_json(plan) : plan_text(plan, fit->alternatives, standard_view()));
    if (!shown) return shown;
    return outcome(plan, options.planning.strict);
}

}  // namespace

void add_fit_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<FitOptions>();
    add_planning_options(command, options->planning);
    command.add_flag("--json", options->json, "Print one JSON object instead of text");
    command.add_option("--svg", options->svg_path, "Draw the plan as a picture")
        ->option_text("FILE");
    command.add_flag("--all-devices", options->all_devices,
                     "One row for each card in configs/devices");
    command.footer(
        "Exit status: 0 it fits; 2 wrong usage or a bad file; 3 it does not fit; 4 --strict and "
        "not in "
        "full.\nExample: plimsoll fit flash-q2 --mtp flash-mtp --device rtx-4090-24gb --host-mem "
        "64GiB");
    action = [options] { return fit(*options); };
}

}  // namespace plimsoll
