#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "tools/planning_options.hpp"

namespace plimsoll {

/// All that a plan is made from, loaded.
struct PlanInputs {
    std::string config_dir;
    Request request;
    MachineFacts machine;
    Model model;
    std::optional<Model> mtp;
    std::vector<std::string> notes;  // what was taken otherwise than one might expect

    [[nodiscard]] const Model* mtp_or_null() const { return mtp ? &*mtp : nullptr; }
};

/// Whether the request names a folder whose disk is to be taken in place of the machine's.
[[nodiscard]] bool names_disk(const Request& request);

/// What to plan for where no device is named.
enum class DefaultDevice : std::uint8_t {
    visible_gpus,  // all that this process sees; the CPU where there are none
    cpu,
};

/// Reads the profile, the models' headers and the device's facts. An error is one line.
[[nodiscard]] Result<PlanInputs> read_plan_inputs(const PlanningOptions& options,
                                                  DefaultDevice default_device);

/// The plan of the inputs as they are, checked by `validate`.
[[nodiscard]] Result<Plan> plan_of(const PlanInputs& inputs);

/// A saved plan, checked by `validate`.
[[nodiscard]] Result<Plan> load_plan(const std::string& path);

/// Changes to the request of a plan that is not full (or reads experts from disk) which would lead
/// to a better one, each tried, with the speed to expect. Empty for refusals, which carry their
/// own.
[[nodiscard]] std::vector<Suggestion> alternatives_to(const Plan& plan, const PlanInputs& inputs);

}  // namespace plimsoll
