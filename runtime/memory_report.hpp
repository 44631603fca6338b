#pragma once

#include <span>
#include <string>

#include "runtime/arena.hpp"

namespace plimsoll {

/// Planned beside measured: of each arena its planned and resident bytes, class by class what is
/// planned, and what the process holds beside the arenas.
[[nodiscard]] std::string memory_report(std::span<const ArenaMemory* const> arenas);

/// What the driver says of a GPU now.
struct GpuMemory {
    std::uint64_t total_bytes = 0;
    std::uint64_t free_bytes = 0;
    std::uint64_t graph_nodes = 0;  // of a decode step; 0: there is no graph
};

/// The same for a plan on a GPU, tier by tier: what is planned, what this program reserved, what is
/// in use as the driver or the system has it, and how much of that no plan accounts for (negative
/// where it is less than planned).
[[nodiscard]] std::string gpu_memory_report(const DevicePlan& plan, const ArenaMemory& device,
                                            const ArenaMemory& host, const GpuMemory& memory);

}  // namespace plimsoll
