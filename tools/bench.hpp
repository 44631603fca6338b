#pragma once

#include "tools/command.hpp"

namespace plimsoll {

/// `plimsoll bench`: tokens per second at context frontiers, as CSV.
void add_bench_command(CLI::App& command, Action& action);

}  // namespace plimsoll
