#include "runtime/memory_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <vector>

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

std::string wide_row(std::string_view name, const std::vector<std::string>& cells) {
    std::string line = fmt::format("{:<18}", name);
    for (const std::string& cell : cells) line += fmt::format("{:>14}", cell);
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

/// An arena of a tier and its classes.
std::string arena_rows(const ArenaMemory& arena) {
    const Arena& plan = arena.plan();
    if (plan.planned_bytes == 0) return {};
    std::string text =
        wide_row("  arena", {format_mib(plan.planned_bytes), format_mib(arena.resident_bytes())});
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
        if (plan.by_class[cls] != 0)
            text +=
                wide_row(fmt::format("    {}", region_class_name(static_cast<RegionClass>(cls))),
                         {format_mib(plan.by_class[cls])});
    return text;
}

/// `measured` less `planned`, to the nearest MiB above.
std::string signed_mib(std::uint64_t measured, std::uint64_t planned) {
    if (measured >= planned) return format_mib(align_up(measured - planned, kMiB));
    return "-" + format_mib(align_up(planned - measured, kMiB));
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

std::string gpu_memory_report(const DevicePlan& plan, const ArenaMemory& device,
                              const ArenaMemory& host, const GpuMemory& memory) {
    // Of the device's total, not of what was free at first: other processes are in it too.
    const std::uint64_t device_bytes = plan.facts.overhead_bytes + plan.arena.planned_bytes;
    const std::uint64_t used_bytes = saturating_sub(memory.total_bytes, memory.free_bytes);
    const std::uint64_t host_bytes = host.plan().planned_bytes;
    const std::uint64_t process_bytes = process_resident_bytes();
    std::string text = wide_row("memory", {"planned", "reserved", "in use", "unaccounted"});
    text += wide_row(plan.facts.name, {format_mib(device_bytes), "", format_mib(used_bytes),
                                       signed_mib(used_bytes, device_bytes)});
    text += wide_row("  driver overhead", {format_mib(plan.facts.overhead_bytes)});
    text += arena_rows(device);
    text += wide_row("host", {format_mib(host_bytes), "", format_mib(process_bytes),
                              signed_mib(process_bytes, host_bytes)});
    text += arena_rows(host);
    if (memory.graph_nodes != 0)
        text += wide_row("decode graph", {fmt::format("{} nodes", memory.graph_nodes)});
    return text;
}

}  // namespace plimsoll
