#pragma once

#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// The plan in a few lines before loading: the verdict and what goes where, then each thing that
/// was asked for and not granted in full, with its price. Not for refusals.
[[nodiscard]] std::vector<std::string> plan_brief(const Plan& plan);

/// The one line of a plan that does not fit: what is short, where, by how much, and the smallest
/// change that fits.
[[nodiscard]] Error refusal_error(const Plan& plan);

/// Whether `run` can execute the plan: it fits, its device is the CPU, and no expert would have to
/// be read from the file during the run. The error says what would lead to a plan that can. With
/// `strict`, also whether the verdict is full.
[[nodiscard]] Status check_runnable(const Plan& plan, bool strict);

}  // namespace plimsoll
