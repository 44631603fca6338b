#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll inspect MODEL`: what a header or an inventory says, without reading a weight. A file
/// with a sound header of a model that is not supported is shown as far as it goes, and is an
/// error.
void add_inspect_command(CLI::App& command, Action& action);

}  // namespace plimsoll
