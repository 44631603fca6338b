#pragma once

#include <string>

#include "planner/plan.hpp"
#include "tools/plan_style.hpp"

namespace plimsoll {

/// What differs between two plans, by class of each tier and by feature: only rows that differ, or
/// one line where nothing does. Ends with a newline.
[[nodiscard]] std::string plan_diff(const Plan& before, const Plan& after, const View& view);

}  // namespace plimsoll
