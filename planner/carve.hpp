#pragma once

#include "planner/footprint.hpp"
#include "planner/plan.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// Gives every region of a division its name and place: fills the arenas and workspaces of
/// `plan.devices` and `plan.host`, whose facts and names are there and whose arenas are empty, and
/// `plan.nvme`.
void carve(Plan& plan, const Footprint& footprint, const Division& division);

/// The division that a plan's numbers stand for, or what is wrong with them, of kind bad_file.
[[nodiscard]] Result<Division> division_of(const Plan& plan, const Footprint& footprint);

}  // namespace plimsoll
