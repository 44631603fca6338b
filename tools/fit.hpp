#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll fit MODEL`: what fits where, before anything is loaded.
void add_fit_command(CLI::App& command, Action& action);

}  // namespace plimsoll
