#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll run`: makes or takes a plan, carries it out, and generates text.
void add_run_command(CLI::App& command, Action& action);

}  // namespace plimsoll
