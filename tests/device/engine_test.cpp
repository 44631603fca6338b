#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

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

double cosine_of(std::span<const float> a, std::span<const float> b) {
    double dot = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        dot += double{a[i]} * double{b[i]};
        aa += double{a[i]} * double{a[i]};
        bb += double{b[i]} * double{b[i]};
    }
    return dot / std::sqrt(aa * bb);
}

TEST(GpuLongRun, DecodedRowsDoNotDriftFromPrefilledOnesAt65536Tokens) {
    PLIMSOLL_NEEDS_GPU();
    constexpr std::size_t kContext = 65'536, kDecoded = 2'000;
    CaseModels models = models_of_case("tiny-q2");
    models.main.hyper.context_length_tokens = kContext;  // random weights hold to no trained one
    const std::uint32_t vocab = models.main.hyper.vocab_size;
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 1'024,
                                                        .context_tokens = kContext,
                                                        .device_bytes = 8ull << 30,
                                                        .host_bytes = 1ull << 30,
                                                        .on_gpu = true}));
    std::mt19937_64 random(65'536);
    std::vector<TokenId> tokens(kContext);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
    // All in chunks, then the same with the last tokens one by one behind the prompt.
    const Logits prefilled = feed(planned, tokens);
    const std::size_t prompt = kContext - kDecoded;
    Engine& engine = planned.engine;
    ASSERT_TRUE(engine.reset());
    for (std::size_t at = 0; at < prompt; at += 1'024)
        ASSERT_TRUE(
            engine.feed(std::span(tokens).subspan(at, std::min<std::size_t>(1'024, prompt - at))));
    std::vector<double> cosines;
    for (std::size_t at = prompt; at < kContext; ++at) {
        const Result<std::span<const float>> logits = engine.feed({&tokens[at], 1});
        ASSERT_TRUE(logits);
        cosines.push_back(cosine_of(*logits, std::span(prefilled.main).subspan(at * vocab, vocab)));
    }
    const auto median = [](std::span<const double> part) {
        std::vector<double> sorted(part.begin(), part.end());
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    };
    const double early = median(std::span(cosines).first(200));
    const double late = median(std::span(cosines).last(200));
    RecordProperty("early", std::to_string(early));
    RecordProperty("late", std::to_string(late));
    EXPECT_GE(late, 0.999);
    EXPECT_GE(late, early - 1e-3);
}

}  // namespace
}  // namespace plimsoll::test
