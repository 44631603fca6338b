#include "runtime/memory_report.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

Arena arena_of(const char* name, RegionClass cls, std::uint64_t size_bytes) {
    Arena arena{.name = name};
    arena.planned_bytes = size_bytes;
    arena.by_class[static_cast<std::size_t>(cls)] = size_bytes;
    return arena;
}

/// An arena whose memory is never touched.
ArenaMemory untouched(const Arena& arena) {
    return ArenaMemory::over(
        arena, std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(4096), [](std::byte*) {}));
}

std::string line_of(const std::string& text, const std::string& start) {
    const std::size_t at = text.find("\n" + start);
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(GpuMemoryReport, SetsWhatTheDriverHasInUseAgainstOverheadAndArena) {
    DevicePlan plan;
    plan.facts.name = "cuda:0";
    plan.facts.overhead_bytes = 500 * kMiB;
    plan.arena = arena_of("cuda:0", RegionClass::expert_weights, 90'000 * kMiB);
    const Arena host = arena_of("host", RegionClass::staging, 64 * kMiB);
    const ArenaMemory device_memory = untouched(plan.arena), host_memory = untouched(host);
    const std::string text = gpu_memory_report(
        plan, device_memory, host_memory,
        {.total_bytes = 140'000 * kMiB, .free_bytes = 49'480 * kMiB, .graph_nodes = 517});
    EXPECT_EQ(line_of(text, "cuda:0"),
              "cuda:0                90,500 MiB                  90,520 MiB        20 MiB");
    EXPECT_EQ(line_of(text, "  arena"), "  arena               90,000 MiB    90,000 MiB");
    EXPECT_NE(text.find("64 MiB"), std::string::npos) << text;
    EXPECT_NE(text.find("517 nodes"), std::string::npos) << text;

    const std::string less = gpu_memory_report(
        plan, device_memory, host_memory,
        {.total_bytes = 140'000 * kMiB, .free_bytes = 49'510 * kMiB, .graph_nodes = 0});
    EXPECT_TRUE(line_of(less, "cuda:0").ends_with(" -10 MiB")) << less;
    EXPECT_EQ(less.find("nodes"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
