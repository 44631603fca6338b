#pragma once

#include <span>
#include <string>

#include "runtime/arena.hpp"

namespace plimsoll {

/// Planned beside measured: of each arena its planned, allocated and resident bytes, class by class
/// what is planned, and what the process holds beside the arenas.
[[nodiscard]] std::string memory_report(std::span<const ArenaMemory* const> arenas);

/// What the driver says of a GPU beside what was planned for it: some lines for below the report of
/// its arenas. `free_bytes` is of now.
[[nodiscard]] std::string gpu_memory_report(const DevicePlan& plan, std::uint64_t total_bytes,
                                            std::uint64_t free_bytes, std::uint64_t graph_nodes);

}  // namespace plimsoll
