#include "planner/pack.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "planner/pack_exact.hpp"
#include "planner/units.hpp"
#include "tests/planner/allocation_csv.hpp"

namespace plimsoll {
namespace {

struct Shape {
    std::uint32_t buffer_count_min = 1;
    std::uint32_t buffer_count_max = 40;
    std::uint32_t op_count = 50;
    std::uint32_t lifetime_ops_max = 12;
    std::uint32_t size_bytes_max = 5000;
    std::uint32_t alignment_log2_max = 9;
};

/// Small inputs on which every packing can be tried; about one in a hundred has none at the lower
/// bound.
constexpr Shape kTiny{.buffer_count_min = 8,
                      .buffer_count_max = 8,
                      .op_count = 9,
                      .lifetime_ops_max = 5,
                      .size_bytes_max = 3,
                      .alignment_log2_max = 2};

std::vector<Buffer> random_buffers(std::uint32_t seed, const Shape& shape) {
    std::mt19937 random(seed);
    // Not std::uniform_int_distribution: its results differ between standard libraries.
    const auto below = [&](std::uint32_t limit) {
        return static_cast<std::uint32_t>(random() % limit);
    };
    std::vector<Buffer> buffers(shape.buffer_count_min +
                                below(shape.buffer_count_max - shape.buffer_count_min + 1));
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const std::uint32_t first_op = below(shape.op_count);
        buffers[i].name = "buffer " + std::to_string(i);
        buffers[i].size_bytes = below(shape.size_bytes_max + 1);
        buffers[i].alignment_bytes = 1u << below(shape.alignment_log2_max + 1);
        buffers[i].lifetime = {first_op, first_op + 1 + below(shape.lifetime_ops_max)};
    }
    return buffers;
}

bool alive_together(const Buffer& a, const Buffer& b) {
    return a.lifetime.first_op < b.lifetime.last_op && b.lifetime.first_op < a.lifetime.last_op;
}

/// Tries every order of the buffers not yet placed, each on top of all that are alive with it.
void try_orders(std::span<const Buffer> buffers, std::vector<std::uint64_t>& end_bytes,
                std::vector<bool>& placed, std::uint64_t top_bytes, std::uint64_t& best_bytes) {
    if (top_bytes >= best_bytes) return;
    bool all_placed = true;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (placed[i]) continue;
        all_placed = false;
        std::uint64_t offset_bytes = 0;
        for (std::size_t j = 0; j < buffers.size(); ++j)
            if (placed[j] && alive_together(buffers[i], buffers[j]))
                offset_bytes = std::max(offset_bytes, end_bytes[j]);
        end_bytes[i] =
            align_up(align_up(offset_bytes, buffers[i].alignment_bytes) + buffers[i].size_bytes,
                     buffers[i].alignment_bytes);
        placed[i] = true;
        try_orders(buffers, end_bytes, placed, std::max(top_bytes, end_bytes[i]), best_bytes);
        placed[i] = false;
    }
    if (all_placed) best_bytes = top_bytes;
}

/// Size of the smallest packing there is. Any packing can be pushed down until it is what placing
/// its buffers in some order from the ground up gives, so all orders are all packings that matter.
/// Empty buffers are left out.
std::uint64_t smallest_packing_bytes(std::span<const Buffer> buffers) {
    std::vector<Buffer> solid;
    for (const Buffer& buffer : buffers)
        if (buffer.size_bytes != 0) solid.push_back(buffer);
    std::vector<std::uint64_t> end_bytes(solid.size(), 0);
    std::vector<bool> placed(solid.size(), false);
    std::uint64_t best_bytes = std::numeric_limits<std::uint64_t>::max();
    try_orders(solid, end_bytes, placed, 0, best_bytes);
    return best_bytes;
}

void expect_valid(std::span<const Buffer> buffers, const Packing& packing) {
    const std::optional<std::string> problem = validate_packing(buffers, packing);
    EXPECT_FALSE(problem) << *problem;
}

TEST(Pack, PlacesNoTwoLiveRegionsOnTheSameByte) {
    for (std::uint32_t seed = 0; seed < 2000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::vector<Buffer> buffers = random_buffers(seed, {});
        expect_valid(buffers, pack(buffers));
        expect_valid(buffers, pack(buffers, {.node_count_max = 0}));
        if (HasFailure()) return;
    }
}

TEST(Pack, ClaimsOptimalityOnlyWhereNoPackingIsSmaller) {
    std::uint32_t above_bound_count = 0;
    for (std::uint32_t seed = 0; seed < 3000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::vector<Buffer> buffers = random_buffers(seed, kTiny);
        const std::uint64_t smallest_bytes = smallest_packing_bytes(buffers);
        for (const std::uint64_t node_count_max : {0u, 1u, 5u, 2000u}) {
            const Packing packing = pack(buffers, {.node_count_max = node_count_max});
            EXPECT_GE(packing.packed_bytes, smallest_bytes);
            EXPECT_LE(packing.proven_min_bytes, smallest_bytes);
            if (packing.optimal) {
                EXPECT_EQ(packing.packed_bytes, smallest_bytes);
            }
            if (node_count_max == 2000) {
                EXPECT_TRUE(packing.optimal);
            }
        }
        above_bound_count += smallest_bytes > pack(buffers).lower_bound_bytes ? 1 : 0;
        if (HasFailure()) return;
    }
    EXPECT_GT(above_bound_count, 10u) << "too few inputs on which a refutation is needed";
}

TEST(Pack, FindsACapacityExactlyWhereOneExists) {
    for (std::uint32_t seed = 0; seed < 3000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::vector<Buffer> buffers = random_buffers(seed, kTiny);
        const std::uint64_t smallest_bytes = smallest_packing_bytes(buffers);
        if (smallest_bytes < 2) continue;
        const Packing enough = pack(buffers, {.capacity_bytes = smallest_bytes});
        expect_valid(buffers, enough);
        EXPECT_LE(enough.packed_bytes, smallest_bytes);
        const Packing short_by_one = pack(buffers, {.capacity_bytes = smallest_bytes - 1});
        expect_valid(buffers, short_by_one);
        EXPECT_GT(short_by_one.proven_min_bytes, smallest_bytes - 1);
        if (HasFailure()) return;
    }
}

/// Rounds up, as a packer does; timelines are made of blocks.
std::vector<Block> blocks_of(std::span<const Buffer> buffers) {
    std::vector<Block> blocks;
    for (const Buffer& buffer : buffers)
        blocks.push_back({align_up(buffer.size_bytes, buffer.alignment_bytes),
                          buffer.alignment_bytes, buffer.lifetime});
    return blocks;
}

TEST(PackWithin, FindsOrRefutesAsTryingEveryOrderDoes) {
    for (std::uint32_t seed = 0; seed < 3000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const std::vector<Buffer> buffers = random_buffers(seed, kTiny);
        const std::uint64_t smallest_bytes = smallest_packing_bytes(buffers);
        const Timeline timeline = timeline_of(blocks_of(buffers));
        const ExactResult found = pack_within(timeline, smallest_bytes, 10'000);
        ASSERT_EQ(found.outcome, ExactOutcome::found);
        for (std::size_t i = 0; i < timeline.items.size(); ++i)
            EXPECT_LE(found.offset_bytes[i] + timeline.items[i].size_bytes, smallest_bytes);
        if (smallest_bytes == 0) continue;
        const ExactResult refuted = pack_within(timeline, smallest_bytes - 1, 10'000);
        ASSERT_EQ(refuted.outcome, ExactOutcome::refuted);
    }
}

TEST(Pack, StopsAtTheFirstPackingWithinTheCapacity) {
    const std::vector<Buffer> buffers = random_buffers(7, {.buffer_count_max = 200});
    const Packing packing = pack(buffers, {.capacity_bytes = kGiB});
    expect_valid(buffers, packing);
    EXPECT_EQ(packing.node_count, 0u);
}

TEST(Pack, SearchesNoFurtherWhereGreedyReachesTheBound) {
    const std::vector<Buffer> chain = {
        {"a", 100, 256, {0, 2}}, {"b", 300, 256, {1, 3}}, {"c", 100, 256, {2, 4}}};
    const Packing packing = pack(chain);
    EXPECT_EQ(packing.packed_bytes, 768u);
    EXPECT_TRUE(packing.optimal);
    EXPECT_EQ(packing.node_count, 0u);
}

TEST(Pack, VisitsAtMostTheGivenNumberOfNodes) {
    const Shape crowded{.buffer_count_max = 120, .lifetime_ops_max = 30, .alignment_log2_max = 0};
    for (std::uint32_t seed = 0; seed < 100; ++seed)
        for (const std::uint64_t node_count_max : {1u, 17u, 300u})
            EXPECT_LE(
                pack(random_buffers(seed, crowded), {.node_count_max = node_count_max}).node_count,
                node_count_max)
                << "seed " << seed;
}

TEST(Pack, GivesEqualOutputForEqualInput) {
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
        const std::vector<Buffer> buffers = random_buffers(seed, {});
        EXPECT_EQ(pack(buffers), pack(buffers)) << "seed " << seed;
    }
}

TEST(Pack, NeedsTheSameBytesHoweverTheBuffersAreListed) {
    for (std::uint32_t seed = 0; seed < 500; ++seed) {
        std::vector<Buffer> buffers = random_buffers(seed, {});
        const Packing packing = pack(buffers);
        std::mt19937 random(seed);
        for (std::size_t i = buffers.size(); i > 1; --i)
            std::swap(buffers[i - 1], buffers[random() % i]);
        EXPECT_EQ(pack(buffers).packed_bytes, packing.packed_bytes) << "seed " << seed;
    }
}

TEST(Pack, TakesNoBytesForNothing) {
    EXPECT_EQ(pack({}).packed_bytes, 0u);
    EXPECT_TRUE(pack({}).optimal);
    const std::vector<Buffer> empty = {{"none", 0, 256, {0, 3}}, {"some", 5, 256, {1, 2}}};
    expect_valid(empty, pack(empty));
    EXPECT_EQ(pack(empty).packed_bytes, 256u);
}

struct MiniMallocCase {
    const char* file;
    std::uint64_t
        node_count_max;  // rather more than needed, so that only a real loss of strength fails
};

void PrintTo(const MiniMallocCase& problem, std::ostream* out) { *out << problem.file; }

class PackMiniMalloc : public ::testing::TestWithParam<MiniMallocCase> {};

TEST_P(PackMiniMalloc, FitsTheCapacityThatGreedyMisses) {
    constexpr std::uint64_t kCapacityBytes = 1'048'576;
    const std::vector<Buffer> buffers = testing::read_allocation_csv(
        std::string(PLIMSOLL_TEST_DATA) + "/minimalloc/" + GetParam().file);
    ASSERT_FALSE(buffers.empty());
    EXPECT_GT(pack(buffers, {.node_count_max = 0}).packed_bytes, kCapacityBytes);
    const Packing packing = pack(
        buffers, {.node_count_max = GetParam().node_count_max, .capacity_bytes = kCapacityBytes});
    expect_valid(buffers, packing);
    EXPECT_LE(packing.packed_bytes, kCapacityBytes);
}

INSTANTIATE_TEST_SUITE_P(Published, PackMiniMalloc,
                         ::testing::Values(MiniMallocCase{"A.1048576.csv", 1'000},
                                           MiniMallocCase{"E.1048576.csv", 1'000'000},
                                           MiniMallocCase{"F.1048576.csv", 4'000},
                                           MiniMallocCase{"H.1048576.csv", 2'000},
                                           MiniMallocCase{"K.1048576.csv", 30'000}));

struct Fault {
    const char* message_part;
    std::function<void(Packing&)> plant;
};

TEST(ValidatePacking, NamesEachKindOfFault) {
    const std::vector<Buffer> buffers = {
        {"left", 250, 256, {0, 2}}, {"right", 200, 256, {2, 4}}, {"both", 300, 256, {1, 3}}};
    const Packing sound = pack(buffers);
    ASSERT_FALSE(validate_packing(buffers, sound));
    ASSERT_EQ(sound.packed_bytes, 768u);
    const Fault faults[] = {
        {"2 offsets for 3 buffers", [](Packing& p) { p.offset_bytes.pop_back(); }},
        {"is not aligned to 256", [](Packing& p) { p.offset_bytes[1] += 8; }},
        {"ends past the region", [](Packing& p) { p.offset_bytes[2] = 768; }},
        {"ends past the region", [](Packing& p) { p.offset_bytes[0] = ~std::uint64_t{255}; }},
        {"ends past the region", [](Packing& p) { p.packed_bytes = 0; }},
        {"overlaps", [](Packing& p) { p.offset_bytes[0] = p.offset_bytes[2]; }},
        {"overlaps", [](Packing& p) { p.offset_bytes[1] = p.offset_bytes[2] + 256; }},
        {"claims a lower bound of 512", [](Packing& p) { p.lower_bound_bytes = 512; }},
        {"fewer than the 768 alive at once", [](Packing& p) { p.packed_bytes = 764; }},
        {"below its own lower bound", [](Packing& p) { p.proven_min_bytes = 512; }},
        {"smaller than what it claims", [](Packing& p) { p.proven_min_bytes = 1024; }},
        {"claims to be improvable", [](Packing& p) { p.optimal = false; }},
        {"claims to be optimal", [](Packing& p) { p.packed_bytes = 1024; }},
    };
    for (const Fault& fault : faults) {
        Packing packing = sound;
        fault.plant(packing);
        const std::optional<std::string> problem = validate_packing(buffers, packing);
        ASSERT_TRUE(problem) << fault.message_part;
        EXPECT_NE(problem->find(fault.message_part), std::string::npos) << *problem;
    }
}

TEST(ValidatePacking, LetsBuffersShareBytesAtDifferentTimes) {
    const std::vector<Buffer> buffers = {{"early", 256, 256, {0, 2}}, {"late", 256, 256, {2, 4}}};
    const Packing packing{.offset_bytes = {0, 0},
                          .packed_bytes = 256,
                          .lower_bound_bytes = 256,
                          .proven_min_bytes = 256,
                          .optimal = true};
    EXPECT_FALSE(validate_packing(buffers, packing));
}

}  // namespace
}  // namespace plimsoll
