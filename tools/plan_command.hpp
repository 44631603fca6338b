#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll plan show|diff|draw PLAN…`: saved plans, seen again.
void add_plan_command(CLI::App& command, Action& action);

}  // namespace plimsoll
