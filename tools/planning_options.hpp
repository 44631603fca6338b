#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/request.hpp"
#include "planner/result.hpp"

namespace CLI {
class App;
}

namespace plimsoll {

/// What the command line says about planning, as typed; the same for every command that plans. An
/// empty optional was not given.
struct PlanningOptions {
    std::optional<std::string> model;
    std::optional<std::string> device;  // a name, a file, or "cpu"
    std::optional<std::string> profile_path;
    std::optional<std::string> mtp_model;
    std::optional<std::string> context;  // tokens, or "max"
    std::optional<std::string> vram;     // sizes, as typed
    std::optional<std::string> reserve;
    std::optional<std::string> host_memory;
    std::optional<std::string> nvme;  // a directory, or "off"
    std::optional<std::string> drafts;
    std::optional<std::string> prefill_chunk;
    std::optional<std::string> sessions;
    std::optional<std::string> rounding;    // "on" or "off"
    std::vector<std::string> requirements;  // F or F=VALUE
    bool strict = false;
    bool precise = false;
    std::optional<std::string> plan_path;    // a saved plan in place of all the above but the model
    std::optional<std::string> output_path;  // where to save the plan
};

/// Adds the options to a command. `options` must outlive the parsing.
void add_planning_options(CLI::App& command, PlanningOptions& options);

/// The request: defaults, over them the profile, over it the command line, whatever the order of
/// the arguments. An error is one line that names the option, or the profile and its line.
[[nodiscard]] Result<Request> request_of(const PlanningOptions& options);

}  // namespace plimsoll
