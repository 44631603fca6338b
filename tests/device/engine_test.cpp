#include <gtest/gtest.h>

#include "tests/device/support.hpp"
#include "tests/runtime/engine_runs.hpp"
#include "tests/runtime/golden_limits.hpp"

namespace plimsoll::test {
namespace {

std::size_t free_device_bytes() {
    std::size_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    return free_bytes;
}

/// A plan of a golden case on the GPU.
class GpuEngine : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override { PLIMSOLL_NEEDS_GPU(); }

    const GoldenCase golden_ = read_golden_case(GetParam());
    const CaseModels& models_ = models_of_case(GetParam());

    [[nodiscard]] RunSetting setting(bool precise) const {
        const bool is_packed = !precise && golden_.rounding;
        return {.chunk_tokens = 1024,
                .precise = precise,
                .rounding = golden_.rounding,
                .kv_format = is_packed ? KvFormat::packed : KvFormat::f32,
                .mtp = true,
                .host_bytes = 1ull << 30,
                .on_gpu = true};
    }
    [[nodiscard]] Limits precise_limits() const {
        return golden_.rounding ? Limits::rounded : Limits::exact;
    }
};
INSTANTIATE_TEST_SUITE_P(Cases, GpuEngine,
                         testing::Values("tiny-f16", "tiny-f16-rounded", "tiny-q2", "tiny-q4",
                                         "mid-q2"));

TEST_P(GpuEngine, PreciseLogitsMatchInAnyChunks) {
    PlannedEngine planned(models_, plan_of_case(models_, setting(true)));
    const Logits together = feed(planned, golden_.tokens);
    expect_within(precise_limits(), golden_, together);
    expect_within(precise_limits(), golden_, feed(planned, golden_.tokens, 37));
    const std::span<const TokenId> start = std::span(golden_.tokens).first(150);
    EXPECT_EQ(feed(planned, start, 1), feed(planned, start));
}

TEST_P(GpuEngine, FastLogitsMatchInChunks) {
    PlannedEngine planned(models_, plan_of_case(models_, setting(false)));
    expect_within(Limits::quantised, golden_, feed(planned, golden_.tokens));
    expect_within(Limits::quantised, golden_, feed(planned, golden_.tokens, 37));
}

TEST_P(GpuEngine, FastLogitsMatchTokenByToken) {
    // Without drafts a single token goes through its decode graph.
    RunSetting decode = setting(false);
    decode.mtp = false;
    PlannedEngine planned(models_, plan_of_case(models_, decode));
    expect_within(Limits::quantised, golden_, feed(planned, golden_.tokens, 1));
}

TEST_P(GpuEngine, GreedyTokensAreThoseOfTheLogits) {
    RunSetting decode = setting(false);
    decode.mtp = false;
    PlannedEngine planned(models_, plan_of_case(models_, decode));
    const std::span<const TokenId> prompt = std::span(golden_.tokens).first(40);
    const std::vector<TokenId> expected = generate(planned, prompt, 24);
    Engine& engine = planned.engine;
    ASSERT_TRUE(engine.reset());
    Result<TokenId> token = engine.feed_greedy(prompt);
    for (const TokenId wanted : expected) {
        ASSERT_TRUE(token);
        EXPECT_EQ(*token, wanted);
        token = engine.feed_greedy({&wanted, 1});
    }
}

TEST_P(GpuEngine, TakesNoDeviceMemoryOnceItIsReady) {
    RunSetting decode = setting(false);
    decode.mtp = false;
    PlannedEngine planned(models_, plan_of_case(models_, decode));
    const std::size_t free_bytes = free_device_bytes();
    ASSERT_EQ(generate(planned, std::span(golden_.tokens).first(40), 8).size(), 8u);
    EXPECT_EQ(free_device_bytes(), free_bytes);
}

}  // namespace
}  // namespace plimsoll::test
