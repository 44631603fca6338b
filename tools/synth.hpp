#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll synth`: model files of made weights.
void add_synth_command(CLI::App& command, Action& action);

}  // namespace plimsoll
