#include "runtime/arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

namespace plimsoll {
namespace {

/// Two regions one behind the other, as a plan has them.
Arena small_arena() {
    Arena arena;
    arena.name = "cpu";
    arena.regions = {{.name = "workspace",
                      .kind = RegionKind::workspace,
                      .cls = RegionClass::workspace,
                      .offset_bytes = 0,
                      .size_bytes = 1 << 20},
                     {.name = "blk.3.dense",
                      .kind = RegionKind::layer_dense,
                      .cls = RegionClass::dense_weights,
                      .layer = 3,
                      .offset_bytes = 1 << 20,
                      .size_bytes = 512}};
    arena.planned_bytes = (1 << 20) + 512;
    return arena;
}

ArenaMemory reserve(const Arena& arena) {
    Result<ArenaMemory> memory = ArenaMemory::reserve(arena);
    if (!memory) throw std::runtime_error(memory.error().message);
    return std::move(*memory);
}

TEST(ArenaMemory, HandsOutEachRegionWhereThePlanPutIt) {
    const Arena arena = small_arena();
    ArenaMemory memory = reserve(arena);
    const auto workspace = memory.take(RegionKind::workspace, kNoLayer, 1 << 20);
    const auto dense = memory.take(RegionKind::layer_dense, 3, 300);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data()) % 4096, 0u);
    EXPECT_EQ(dense.data(), workspace.data() + (1 << 20));
    EXPECT_EQ(dense.size(), 512u);
    std::fill(dense.begin(), dense.end(), std::byte{1});
}

TEST(ArenaMemory, HasMemoryBehindEveryPageOnceItIsWritten) {
    const Arena arena = small_arena();
    ArenaMemory memory = reserve(arena);
    const auto workspace = memory.take(RegionKind::workspace, kNoLayer, 1 << 20);
    const auto dense = memory.take(RegionKind::layer_dense, 3, 512);
    std::fill(workspace.begin(), workspace.end(), std::byte{1});
    std::fill(dense.begin(), dense.end(), std::byte{1});
    EXPECT_EQ(memory.resident_bytes(), arena.planned_bytes);
}

TEST(ArenaMemory, OfNoBytesNeedsNone) {
    const Arena arena{.name = "host"};
    EXPECT_EQ(reserve(arena).resident_bytes(), 0u);
}

TEST(ArenaMemory, SaysWhatTheSystemRefuses) {
    Arena arena = small_arena();
    arena.planned_bytes = 1ull << 60;
    const Result<ArenaMemory> memory = ArenaMemory::reserve(arena);
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().kind, ErrorKind::no_fit);
    EXPECT_NE(memory.error().message.find("cpu"), std::string::npos);
}

using ArenaMemoryDeathTest = testing::Test;

TEST(ArenaMemoryDeathTest, StopsWithTheRegionsNameWhenSealed) {
    const Arena arena = small_arena();
    ArenaMemory memory = reserve(arena);
    memory.seal();
    EXPECT_DEATH((void)memory.take(RegionKind::layer_dense, 3, 512), "sealed .*blk.3.dense");
}

TEST(ArenaMemoryDeathTest, StopsWhenARegionIsTakenTwice) {
    const Arena arena = small_arena();
    ArenaMemory memory = reserve(arena);
    (void)memory.take(RegionKind::layer_dense, 3, 512);
    EXPECT_DEATH((void)memory.take(RegionKind::layer_dense, 3, 512), "handed out already");
}

TEST(ArenaMemoryDeathTest, StopsAtAnotherSizeThanPlannedAndAtARegionThatIsNotThere) {
    const Arena arena = small_arena();
    ArenaMemory memory = reserve(arena);
    EXPECT_DEATH((void)memory.take(RegionKind::layer_dense, 3, 513), "512 bytes planned and 513");
    EXPECT_DEATH((void)memory.take(RegionKind::layer_dense, 3, 256), "512 bytes planned and 256");
    EXPECT_DEATH((void)memory.take(RegionKind::layer_dense, 4, 512), "no region");
}

}  // namespace
}  // namespace plimsoll
