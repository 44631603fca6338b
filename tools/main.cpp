#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>

#include "tools/bench.hpp"
#include "tools/command.hpp"
#include "tools/fit.hpp"
#include "tools/inspect.hpp"
#include "tools/plan_command.hpp"
#include "tools/probe.hpp"
#include "tools/run.hpp"
#include "tools/synth.hpp"

namespace plimsoll {
namespace {

constexpr Command kCommands[] = {
    {"fit", "What fits where, before loading or even downloading a model", add_fit_command},
    {"run", "Generate text with a model, through a plan", add_run_command},
    {"bench", "Tokens per second at context frontiers, as CSV", add_bench_command},
    {"plan", "Show, compare or draw saved plans", add_plan_command},
    {"inspect", "What a model file says of itself: keys, tensors, sizes", add_inspect_command},
    {"synth", "Make a synthetic model file", add_synth_command},
    {"probe", "Measure this machine and write a device file", add_probe_command},
};

/// One line, whatever a message holds: file names and values are the user's.
void print_problem(std::string message) {
    std::replace(message.begin(), message.end(), '\n', ' ');
    fmt::print(stderr, "plimsoll: {}\n", message);
}

/// The command whose arguments could not be parsed, for the advice.
std::string help_of(const CLI::App& app) {
    std::string line = "plimsoll";
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
        at = at->get_subcommands().front();
        line += " " + at->get_name();
    }
    return line + " --help";
}

int run(int argc, char** argv) {
    CLI::App app("Plimsoll: what fits on your GPU, planned to the byte.", "plimsoll");
    app.set_version_flag("--version", "plimsoll " PLIMSOLL_VERSION);
    app.require_subcommand(1);
    app.footer("`plimsoll COMMAND --help` tells more about each.");
    std::array<Action, std::size(kCommands)> actions;
    for (std::size_t at = 0; at < actions.size(); ++at)
        kCommands[at].add(*app.add_subcommand(kCommands[at].name, kCommands[at].help), actions[at]);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        if (problem.get_exit_code() == 0) return app.exit(problem);  // --help, --version
        print_problem(fmt::format("{} (see {})", problem.what(), help_of(app)));
        return exit_status(ErrorKind::usage);
    }
    for (std::size_t at = 0; at < actions.size(); ++at) {
        if (!app.got_subcommand(kCommands[at].name)) continue;
        const Status status = actions[at]();
        if (status) return 0;
        print_problem(status.error().message);
        return exit_status(status.error().kind);
    }
    return exit_status(ErrorKind::usage);
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
    try {
        return plimsoll::run(argc, argv);
    } catch (const std::exception& problem) {
        plimsoll::print_problem(fmt::format("internal error: {}", problem.what()));
        return plimsoll::exit_status(plimsoll::ErrorKind::internal);
    }
}
