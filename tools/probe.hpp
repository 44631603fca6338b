#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll probe`: measures this machine and writes a device file.
void add_probe_command(CLI::App& command, Action& action);

}  // namespace plimsoll
