#include "runtime/memory_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// Resident bytes of the process: the second number of statm, in pages. 0 where it is not to be
/// had.
std::uint64_t process_resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::uint64_t total_pages = 0, resident_pages = 0;
    if (!(file >> total_pages >> resident_pages)) return 0;
    return resident_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string row(std::string_view name, const std::string& planned, const std::string& measured) {
    std::string line = fmt::format("{:<18}{:>12}{:>12}", name, planned, measured);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

}  // namespace

std::string memory_report(std::span<const ArenaMemory* const> arenas) {
    std::string text = row("memory", "planned", "measured");
    std::uint64_t arenas_resident_bytes = 0;
    for (const ArenaMemory* arena : arenas) {
        const Arena& plan = arena->plan();
        if (plan.planned_bytes == 0) continue;
        const std::uint64_t resident_bytes = arena->resident_bytes();
        arenas_resident_bytes += resident_bytes;
        text += row(plan.name, format_bytes(plan.planned_bytes), format_bytes(resident_bytes));
        for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
            if (plan.by_class[cls] != 0)
                text += row(fmt::format("  {}", region_class_name(static_cast<RegionClass>(cls))),
                            format_bytes(plan.by_class[cls]), "");
    }
    const std::uint64_t process_bytes = process_resident_bytes();
    if (process_bytes != 0)
        text += row("unaccounted", "",
                    format_bytes(saturating_sub(process_bytes, arenas_resident_bytes)));
    return text;
}

std::string gpu_memory_report(const DevicePlan& plan, std::uint64_t total_bytes,
                              std::uint64_t free_bytes, std::uint64_t graph_nodes) {
    // Of the device's total, not of what was free at first: other processes are in it too.
    const std::uint64_t used_bytes = saturating_sub(total_bytes, free_bytes);
    const std::uint64_t planned_bytes = plan.arena.planned_bytes + plan.facts.overhead_bytes;
    const bool is_more = used_bytes > planned_bytes;
    const std::uint64_t difference_bytes =
        is_more ? used_bytes - planned_bytes : planned_bytes - used_bytes;
    return row("driver", format_bytes(total_bytes), "") +
           row("  overhead", format_bytes(plan.facts.overhead_bytes), "") +
           row("  in use", format_bytes(planned_bytes), format_bytes(used_bytes)) +
           row("  unaccounted", "", (is_more ? "" : "-") + format_bytes(difference_bytes)) +
           row("decode graph", "", fmt::format("{} nodes", graph_nodes));
}

}  // namespace plimsoll
