#include "tools/plan_command.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/plan_diff.hpp"
#include "tools/plan_svg.hpp"
#include "tools/plan_view.hpp"
#include "tools/planning.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

struct PlanCommandOptions {
    std::string path;
    std::vector<std::string> pair;  // of diff: before, after
    std::optional<std::string> svg_path;
    bool json = false;
};

Status show(const PlanCommandOptions& options) {
    const Result<Plan> plan = load_plan(options.path);
    if (!plan) return plan.error();
    return print_text(options.json ? plan_to_json(*plan) : plan_text(*plan, {}, standard_view()));
}

Status diff(const PlanCommandOptions& options) {
    const Result<Plan> before = load_plan(options.pair[0]);
    if (!before) return before.error();
    const Result<Plan> after = load_plan(options.pair[1]);
    if (!after) return after.error();
    return print_text(plan_diff(*before, *after, standard_view()));
}

Status draw(const PlanCommandOptions& options) {
    const Result<Plan> plan = load_plan(options.path);
    if (!plan) return plan.error();
    if (options.svg_path) return write_text_file(*options.svg_path, plan_svg(*plan));
    return print_text(plan_title(*plan) + "\n" + plan_map(*plan, standard_view()));
}

}  // namespace

void add_plan_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<PlanCommandOptions>();
    command.require_subcommand(1);
    CLI::App* shown = command.add_subcommand("show", "The tables and decisions of a saved plan");
    shown->add_option("PLAN", options->path, "A file that fit -o wrote")
        ->required()
        ->option_text(" ");
    shown->add_flag("--json", options->json, "Print the JSON object of fit --json");
    CLI::App* compared = command.add_subcommand("diff", "What differs between two saved plans");
    compared->add_option("PLANS", options->pair, "The plan before and the plan after")
        ->required()
        ->expected(2)
        ->option_text("BEFORE AFTER");
    CLI::App* drawn = command.add_subcommand("draw", "The memory map of a saved plan");
    drawn->add_option("PLAN", options->path, "A file that fit -o wrote")
        ->required()
        ->option_text(" ");
    drawn->add_option("--svg", options->svg_path, "Draw a picture into a file; - is the output")
        ->option_text("FILE");
    action = [options, shown, compared] {
        return shown->parsed()      ? show(*options)
               : compared->parsed() ? diff(*options)
                                    : draw(*options);
    };
}

}  // namespace plimsoll
