#pragma once

#include <string>

#include "planner/plan.hpp"

namespace plimsoll {

/// A picture of the plan: every tier as a bar on one scale, where each layer's experts are, and the
/// workspace with time across and bytes upward. A whole SVG document, without scripts or outside
/// references.
[[nodiscard]] std::string plan_svg(const Plan& plan);

}  // namespace plimsoll
