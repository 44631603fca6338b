#include <benchmark/benchmark.h>

#include <random>

#include "planner/pack.hpp"
#include "tests/planner/allocation_csv.hpp"

namespace plimsoll {
namespace {

/// As many buffers as one of our schedules has: most live for a few ops, some for most of the step.
std::vector<Buffer> schedule_like_buffers(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Buffer> buffers;
    for (int i = 0; i < 60; ++i) {
        const auto first_op = static_cast<std::uint32_t>(random() % 80);
        const auto op_count = static_cast<std::uint32_t>(random() % (i % 6 == 0 ? 60 : 6)) + 1;
        const std::uint64_t size_bytes = (1 + random() % 4096) << (random() % 10);
        buffers.push_back({.name = "buffer " + std::to_string(i),
                           .size_bytes = size_bytes,
                           .lifetime = {first_op, first_op + op_count}});
    }
    return buffers;
}

/// Cost of packing a schedule, over 64 of them; `gap_percent` is the mean distance from the lower
/// bound.
void pack_schedule(benchmark::State& state) {
    std::vector<std::vector<Buffer>> schedules;
    for (std::uint32_t seed = 0; seed < 64; ++seed)
        schedules.push_back(schedule_like_buffers(seed));
    const PackLimits limits{.node_count_max = static_cast<std::uint64_t>(state.range(0))};
    std::size_t next = 0;
    double gap = 0;
    for (auto _ : state) {
        const Packing packing = pack(schedules[next++ % schedules.size()], limits);
        gap += static_cast<double>(packing.packed_bytes) /
                   static_cast<double>(packing.lower_bound_bytes) -
               1.0;
    }
    state.counters["gap_percent"] =
        benchmark::Counter(100.0 * gap, benchmark::Counter::kAvgIterations);
}
BENCHMARK(pack_schedule)->ArgName("nodes")->Arg(0)->Arg(2'000)->Unit(benchmark::kMicrosecond);

void pack_minimalloc(benchmark::State& state, const char* file) {
    const std::vector<Buffer> buffers =
        testing::read_allocation_csv(std::string(PLIMSOLL_TEST_DATA) + "/minimalloc/" + file);
    std::uint64_t node_count = 0;
    for (auto _ : state)
        node_count =
            pack(buffers, {.node_count_max = 100'000, .capacity_bytes = 1'048'576}).node_count;
    state.counters["nodes"] = static_cast<double>(node_count);
}
BENCHMARK_CAPTURE(pack_minimalloc, A, "A.1048576.csv")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(pack_minimalloc, K, "K.1048576.csv")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plimsoll

BENCHMARK_MAIN();
