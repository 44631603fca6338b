// Packs a folder of MiniMalloc problems (CAPACITY in NAME.CAPACITY.csv) and prints a row for each:
//
//     build/tests/bench/minimalloc FOLDER [NODE_COUNT_MAX]
//
// Exit status 1 where one is not solved or the validator rejects a packing.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "planner/pack.hpp"
#include "tests/planner/allocation_csv.hpp"

namespace {

using namespace plimsoll;

/// The number between the last two dots of a file name, or 0.
std::uint64_t capacity_of(const std::filesystem::path& path) {
    const std::string capacity = path.stem().extension().string();
    return capacity.empty() ? 0 : std::strtoull(capacity.c_str() + 1, nullptr, 10);
}

const char* verdict(const Packing& packing, std::uint64_t capacity_bytes) {
    if (packing.packed_bytes <= capacity_bytes) return "fits";
    return packing.proven_min_bytes > capacity_bytes ? "impossible" : "gave up";
}

bool print_row(const std::filesystem::path& path, std::uint64_t node_count_max) {
    const std::uint64_t capacity_bytes = capacity_of(path);
    const std::vector<Buffer> buffers = testing::read_allocation_csv(path.string());
    const Packing greedy = pack(buffers, {.node_count_max = 0, .capacity_bytes = capacity_bytes});
    const auto start = std::chrono::steady_clock::now();
    const Packing packing =
        pack(buffers, {.node_count_max = node_count_max, .capacity_bytes = capacity_bytes});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const std::optional<std::string> problem = validate_packing(buffers, packing);
    fmt::print(
        "{:<18} {:>7} {:>12} {:>12} {:>8.1f} % {:>12} {:>9} {:>10.3f}  {}\n",
        path.filename().string(), buffers.size(), packing.lower_bound_bytes, greedy.packed_bytes,
        100.0 * static_cast<double>(greedy.packed_bytes) / static_cast<double>(capacity_bytes),
        packing.packed_bytes, packing.node_count, elapsed.count(),
        problem ? problem->c_str() : verdict(packing, capacity_bytes));
    return !problem && packing.packed_bytes <= capacity_bytes;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2 || !std::filesystem::is_directory(argv[1])) {
        fmt::print(stderr, "usage: minimalloc FOLDER [NODE_COUNT_MAX]\n");
        return 2;
    }
    const std::uint64_t node_count_max =
        argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20'000'000;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
        if (entry.path().extension() == ".csv" && capacity_of(entry.path()) != 0)
            paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());

    fmt::print("{:<18} {:>7} {:>12} {:>12} {:>10} {:>12} {:>9} {:>10}\n", "problem", "buffers",
               "bound", "greedy", "of capac.", "packed", "nodes", "seconds");
    bool all_solved = !paths.empty();
    for (const std::filesystem::path& path : paths) all_solved &= print_row(path, node_count_max);
    return all_solved ? 0 : 1;
}
