#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "tools/planning_options.hpp"

namespace plimsoll {

/// A plan and the models it is for, before anything is loaded. The plan may be a refusal.
struct Launch {
    Plan plan;
    Model model;
    std::optional<Model> mtp;  // where the plan has a draft head
    std::vector<Suggestion> alternatives;
    std::vector<std::string> notes;  // what the run does otherwise than one might expect

    [[nodiscard]] const Model* mtp_or_null() const { return mtp ? &*mtp : nullptr; }
};

/// Makes the plan that the options ask for, for the CPU where no device is named, or takes the
/// saved one exactly. `seek_alternatives` finds changes that would improve it, for showing.
/// Refuses a saved plan whose model files have changed since, naming the file.
[[nodiscard]] Result<Launch> prepare_launch(const PlanningOptions& options, bool seek_alternatives);

/// Whether the memory planned is there now. `available_bytes` 0 is unknown and passes. The error,
/// kind no_fit, names the difference.
[[nodiscard]] Status check_memory(const Plan& plan, std::uint64_t available_bytes);

}  // namespace plimsoll
