#include "planner/pack_timeline.hpp"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(PackTimeline, KeepsOnlyMomentsWhoseLiveSetNoOtherContains) {
    const std::vector<Block> blocks = {{16, 1, {0, 4}}, {8, 1, {0, 2}}, {4, 1, {2, 5}}};
    const Timeline timeline = timeline_of(blocks);
    const std::vector<std::vector<std::uint32_t>> alive = {{0, 1}, {0, 2}};
    EXPECT_EQ(timeline.alive, alive);
    const std::vector<std::vector<std::uint32_t>> neighbours = {{1, 2}, {0}, {0}};
    EXPECT_EQ(timeline.neighbours, neighbours);
}

TEST(PackTimeline, LeavesOutBlocksWithoutBytes) {
    const std::vector<Block> blocks = {{0, 256, {0, 4}}, {256, 256, {1, 2}}};
    const Timeline timeline = timeline_of(blocks);
    ASSERT_EQ(timeline.items.size(), 1u);
    EXPECT_EQ(timeline.items[0].block, 1u);
}

TEST(PackTimeline, CountsInTheLargestUnitThatAllOffsetsShare) {
    const std::vector<Block> coarse = {{3072, 1, {0, 2}}, {2048, 256, {0, 2}}};
    EXPECT_EQ(timeline_of(coarse).unit_bytes, 1024u);
    // 768 is no multiple of 512, so the second may end up at 1024: only 256 divides everything.
    const std::vector<Block> rounded = {{768, 256, {0, 2}}, {1536, 512, {0, 2}}};
    EXPECT_EQ(timeline_of(rounded).unit_bytes, 256u);
}

}  // namespace
}  // namespace plimsoll
