#pragma once

#include <vector>

#include "planner/plan.hpp"
#include "tools/synth_file.hpp"

namespace plimsoll {

/// The parts of a model's file that a plan reads, at load or later: the tensors of its regions and
/// the experts that stay in the file. `model` is the plan's main model or its draft head.
[[nodiscard]] std::vector<FileRange> plan_reads(const Plan& plan, const Model& model);

}  // namespace plimsoll
