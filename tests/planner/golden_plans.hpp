#pragma once

#include <string>
#include <vector>

namespace plimsoll::test {

/// A plan that is kept as text, so that a change of the planner shows what it changes.
struct GoldenPlan {
    std::string name;  // of its file: "flash-q2.rtx-4090-24gb"
    std::string text;
};

/// The plans of every model on every kind of machine, and of every profile, as the planner makes
/// them now. `config_dir` holds devices, models and profiles. Throws std::runtime_error where one
/// cannot be made.
[[nodiscard]] std::vector<GoldenPlan> make_golden_plans(const std::string& config_dir);

}  // namespace plimsoll::test
