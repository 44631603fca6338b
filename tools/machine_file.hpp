#pragma once

#include <string>

#include "planner/machine.hpp"

namespace plimsoll {

/// `machine` as the text of a device file, which `parse_machine` reads back as the same facts. Host
/// memory that is available is left out: it belongs to the moment, not to the machine. Rates are
/// whole numbers of bytes and operations per second.
[[nodiscard]] std::string machine_yaml(const MachineFacts& machine);

}  // namespace plimsoll
