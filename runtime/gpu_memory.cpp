#include "runtime/gpu_memory.hpp"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string_view>
#include <utility>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

namespace c = kernels::cuda;

std::uint32_t device_index(std::string_view name) {
    constexpr std::string_view kPrefix = "cuda:";
    std::uint32_t index = 0;
    if (name.starts_with(kPrefix))
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), index);
    return index;
}

/// The memory as an arena's, given back with the last of its users.
ArenaMemory arena_over(const Arena& arena, c::DeviceMemory allocated) {
    auto memory = std::make_shared<c::DeviceMemory>(std::move(allocated));
    std::byte* data = memory->data();
    return ArenaMemory::over(arena, std::shared_ptr<std::byte>(std::move(memory), data));
}

}  // namespace

Error error_of(const std::string& name, const c::DeviceProblem& problem, ErrorKind kind) {
    return {problem.is_lost ? ErrorKind::device_lost : kind,
            fmt::format("{}: {}", name, problem.message)};
}

Status open_device(const DeviceFacts& facts, c::Device& out) {
    c::DeviceProblem opened = c::Device::open(device_index(facts.name), out);
    if (opened.is_none()) return ok_status();
    opened.message += "; --device cpu runs on the processor";
    return error_of(facts.name, opened, ErrorKind::usage);
}

Status check_free_memory(const DevicePlan& device, std::uint64_t free_bytes) {
    const std::uint64_t planned_bytes = device.arena.planned_bytes;
    if (planned_bytes <= free_bytes) return ok_status();
    const std::uint64_t short_bytes = align_up(planned_bytes - free_bytes, kMiB);
    const std::uint64_t free_then_bytes =
        saturating_sub(device.facts.total_bytes, device.facts.overhead_bytes);
    const std::uint64_t taken_bytes = saturating_sub(free_then_bytes, free_bytes);
    return Error{ErrorKind::no_fit,
                 fmt::format("{}: the plan takes {} and {} are free now, short by {}: other "
                             "programs hold {} more than when the device was measured; end them, "
                             "or plan again",
                             device.facts.name, format_mib(planned_bytes), format_mib(free_bytes),
                             format_mib(short_bytes), format_mib(taken_bytes))};
}

Result<ArenaMemory> allocate_device_arena(c::Device& device, const Arena& arena) {
    c::DeviceMemory memory;
    const c::DeviceProblem problem = device.allocate(arena.planned_bytes, memory);
    if (problem.is_none()) return arena_over(arena, std::move(memory));
    return error_of(fmt::format("{}: the driver refuses {} in one piece: lower --vram", arena.name,
                                format_mib(arena.planned_bytes)),
                    problem, ErrorKind::no_fit);
}

Result<ArenaMemory> allocate_pinned_arena(c::Device& device, const Arena& arena) {
    c::DeviceMemory memory;
    const c::DeviceProblem problem = device.allocate_pinned(arena.planned_bytes, memory);
    if (problem.is_none()) return arena_over(arena, std::move(memory));
    return error_of(fmt::format("{}: the system refuses to pin {}: lower --host-mem, or raise the "
                                "limit of locked memory",
                                arena.name, format_mib(arena.planned_bytes)),
                    problem, ErrorKind::no_fit);
}

}  // namespace plimsoll
