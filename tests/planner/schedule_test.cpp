#include "planner/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/pack.hpp"
#include "planner/units.hpp"
#include "tests/planner/flash.hpp"

namespace plimsoll::test {
namespace {

Schedule flash_schedule(std::uint64_t tokens, const Model* mtp = nullptr) {
    return build_schedule(flash_q2(), mtp,
                          {.tokens = tokens,
                           .logits_rows = 1,
                           .quantized_activations = true,
                           .first_device = true,
                           .last_device = true,
                           .layer_first = 0,
                           .layer_last = flash_q2().hyper.n_layers});
}

std::uint64_t packed_bytes(const Schedule& schedule) { return pack(schedule.buffers).packed_bytes; }

TEST(Schedule, EveryBufferLivesExactlyFromItsFirstToItsLastUse) {
    const Schedule schedule = flash_schedule(2048, &flash_mtp());
    for (const Buffer& buffer : schedule.buffers) {
        EXPECT_LT(buffer.lifetime.first_op, buffer.lifetime.last_op) << buffer.name;
        EXPECT_GT(buffer.size_bytes, 0u) << buffer.name;
    }
}

TEST(Schedule, BufferNamesAreUnique) {
    std::set<std::string> names;
    for (const Buffer& buffer : flash_schedule(256, &flash_mtp()).buffers)
        EXPECT_TRUE(names.insert(buffer.name).second) << buffer.name;
}

TEST(Schedule, WorkspaceOfTheTargetChunkStaysBelowItsLimit) {
    EXPECT_LT(packed_bytes(flash_schedule(2048)), 800 * kMiB);
}

TEST(Schedule, WorkspaceGrowsWithTheChunk) {
    std::uint64_t last_bytes = 0;
    for (std::uint64_t tokens = 1; tokens <= 8192; tokens *= 2) {
        const std::uint64_t bytes = packed_bytes(flash_schedule(tokens));
        EXPECT_GE(bytes, last_bytes) << tokens << " tokens";
        last_bytes = bytes;
    }
    const std::uint64_t small = packed_bytes(flash_schedule(2048));
    const std::uint64_t large = packed_bytes(flash_schedule(4096));
    EXPECT_NEAR(static_cast<double>(large) / static_cast<double>(small), 2.0, 0.05);
}

TEST(IndexerScores, DoNotGrowWithContextAndStopGrowingWithTheChunk) {
    const std::uint64_t few = indexer_scores_bytes(32, 512);
    const std::uint64_t many = indexer_scores_bytes(4096, 512);
    EXPECT_LT(few, many);
    EXPECT_EQ(many, indexer_scores_bytes(64, 512));
    EXPECT_LT(many, kMiB) << "untiled they would be 4 GiB at 1,048,576 tokens";
}

}  // namespace
}  // namespace plimsoll::test
