#pragma once

#include "planner/model.hpp"

namespace plimsoll::test {

/// Plans an accepted main model for a small machine: whatever its numbers are, the outcome must be
/// a plan that keeps every rule, a refusal, or an error of one line.
void check_planning(const Model& model);

}  // namespace plimsoll::test
