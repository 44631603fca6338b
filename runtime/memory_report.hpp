#pragma once

#include <span>
#include <string>

#include "runtime/arena.hpp"

namespace plimsoll {

/// Planned beside measured: of each arena its planned, allocated and resident bytes, class by class
/// what is planned, and what the process holds beside the arenas.
[[nodiscard]] std::string memory_report(std::span<const ArenaMemory* const> arenas);

}  // namespace plimsoll
