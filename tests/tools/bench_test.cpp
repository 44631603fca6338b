#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tools/bench_report.hpp"
#include "tools/bench_steps.hpp"
#include "tools/bench_walk.hpp"

namespace plimsoll {
namespace {

using Contexts = std::vector<std::uint64_t>;

Contexts contexts(const BenchWalk& walk) {
    const Result<Contexts> found = contexts_of(walk);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : Contexts{};
}

TEST(BenchSteps, EndAtTheLastContextWhateverTheStep) {
    const BenchWalk walk{.ctx_start_tokens = 2'048, .ctx_max_tokens = 28'672};
    EXPECT_EQ(contexts(walk), (Contexts{2'048, 4'096, 8'192, 16'384, 28'672}));
    BenchWalk by_factor = walk;
    by_factor.step_mul = 14;
    EXPECT_EQ(contexts(by_factor), (Contexts{2'048, 28'672}));
    BenchWalk by_tokens = walk;
    by_tokens.step_incr_tokens = 10'000;
    EXPECT_EQ(contexts(by_tokens), (Contexts{2'048, 12'048, 22'048, 28'672}));
    EXPECT_EQ(contexts({.ctx_start_tokens = 7, .ctx_max_tokens = 7}), Contexts{7});
    EXPECT_EQ(walked_tokens(walk), 28'800u);
}

TEST(BenchSteps, RefuseAWalkThatCannotBeWalked) {
    const struct {
        BenchWalk walk;
        const char* part;
    } cases[] = {
        {{.ctx_max_tokens = 4'096, .step_mul = 1.0}, "--step-mul"},
        {{.ctx_max_tokens = 4'096, .step_mul = 0.5}, "--step-mul"},
        {{.ctx_max_tokens = 4'096, .step_mul = 2.0, .step_incr_tokens = 512}, "--step-incr"},
        {{.ctx_max_tokens = 1'024}, "--ctx-start 2048 lies behind --ctx-max 1024"},
        {{.ctx_max_tokens = 4'096, .step_incr_tokens = 128}, "128 apart"},
        {{.ctx_max_tokens = 2'100}, "52 apart"},
        {{.ctx_start_tokens = 1, .ctx_max_tokens = 9, .step_mul = 1.5, .gen_tokens = 0}, "0 apart"},
        {{.ctx_max_tokens = 1'000'000, .step_incr_tokens = 1, .gen_tokens = 0}, "10,000 contexts"},
    };
    for (const auto& refused : cases) {
        const Result<Contexts> found = contexts_of(refused.walk);
        ASSERT_FALSE(found.ok()) << refused.part;
        EXPECT_EQ(found.error().kind, ErrorKind::usage);
        EXPECT_NE(found.error().message.find(refused.part), std::string::npos)
            << found.error().message;
    }
}

/// Remembers how many tokens each call fed.
struct ScriptedModel {
    std::vector<std::size_t> calls;
    std::size_t resets = 0;
    std::size_t interrupt_at = 0;  // raises SIGINT in this call, from 1

    TokenModel model() {
        return {.chunk_tokens = 100,
                .reset =
                    [this] {
                        ++resets;
                        return ok_status();
                    },
                .feed = {},
                .feed_greedy = [this](std::span<const TokenId> tokens) -> Result<TokenId> {
                    calls.push_back(tokens.size());
                    for (const TokenId token : tokens) EXPECT_TRUE(token >= 0 && token < 50);
                    if (calls.size() == interrupt_at) std::raise(SIGINT);
                    return TokenId{7};
                }};
    }
};

TEST(ContextWalk, FeedsChunksUpToEachContextAndCountsWhatItGenerated) {
    ScriptedModel script;
    const InterruptFlag interrupt;
    ContextWalk walk(script.model(), 50, interrupt);
    ASSERT_TRUE(walk.warm_up(512, 1));
    EXPECT_EQ(script.calls, (std::vector<std::size_t>{100, 1}));
    EXPECT_EQ(script.resets, 1u);
    script.calls.clear();
    const Result<BenchRow> first = walk.measure(250, 3);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(script.calls, (std::vector<std::size_t>{100, 100, 50, 1, 1, 1}));
    EXPECT_EQ(first->ctx_tokens, 250u);
    EXPECT_EQ(first->prefill_tokens, 250u);
    EXPECT_EQ(first->gen_tokens, 3u);
    const Result<BenchRow> second = walk.measure(300, 0);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->prefill_tokens, 47u);
    EXPECT_EQ(script.calls.back(), 47u);
}

TEST(ContextWalk, EndsAtTheCallBehindAnInterrupt) {
    ScriptedModel script{.interrupt_at = 2};
    const InterruptFlag interrupt;
    ContextWalk walk(script.model(), 50, interrupt);
    const Result<BenchRow> row = walk.measure(1'000, 1);
    ASSERT_FALSE(row.ok());
    EXPECT_EQ(exit_status(row.error().kind), 130);
    EXPECT_EQ(script.calls.size(), 2u);
}

constexpr BenchRow kRow{.ctx_tokens = 4'096,
                        .prefill_tokens = 2'048,
                        .prefill_seconds = 0.5,
                        .gen_tokens = 100,
                        .gen_seconds = 0.25,
                        .kvcache_bytes = 12'345};

DeviceFacts round_device() {
    return {.memory_bandwidth_bytes_per_s = 4e12, .fp16_flops_per_s = 1e15};
}

TEST(BenchReport, HasTheColumnsThatOtherBenchesHave) {
    EXPECT_STREQ(kBenchHeader,
                 "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes");
    EXPECT_EQ(csv_row(kRow), "4096,2048,4096.00,100,400.00,12345");
    EXPECT_EQ(csv_row({.ctx_tokens = 1, .prefill_tokens = 1, .prefill_seconds = 1}),
              "1,1,1.00,0,0.00,0");
}

TEST(BenchReport, PutsRatesBesideWhatWasPredictedAndBesideTheRoofline) {
    EXPECT_EQ(steps_of(kRow, 1'024).chunk_tokens, 1'024u);
    EXPECT_EQ(steps_of(kRow, 4'096).chunk_tokens, 2'048u);
    // 1,024 tokens in 0.1024 s at best; a token in 2 ms.
    const StepPairCost cost{.prefill_tokens = 1'024,
                            .prefill = {.flops = 1.024e14, .seconds = 0.2048},
                            .decode = {.memory_bytes = 8e9, .seconds = 0.004}};
    const std::string table = rate_table(round_device(), {&kRow, 1}, {&cost, 1});
    EXPECT_NE(table.find("     4,096      4,096      5,000     41.0 %         400        250     "
                         "80.0 %\n"),
              std::string::npos)
        << table;
    const std::string shares = share_lines(round_device(), {&kRow, 1}, {&cost, 1});
    EXPECT_NE(shares.find("3200.0 of 4000.0 GB/s: decode_bandwidth_share: 0.800\n"),
              std::string::npos)
        << shares;
    EXPECT_NE(shares.find("409.6 of 1000.0 TFLOP/s: prefill_compute_share: 0.410\n"),
              std::string::npos)
        << shares;
}

TEST(BenchReport, ShowsADashForWhatWasNotMeasured) {
    const BenchRow row{.ctx_tokens = 8, .prefill_tokens = 8, .prefill_seconds = 1};
    const StepPairCost cost{
        .prefill_tokens = 8, .prefill = {.seconds = 1}, .decode = {.seconds = 1}};
    EXPECT_NE(rate_table(round_device(), {&row, 1}, {&cost, 1}).find(" - "), std::string::npos);
    EXPECT_EQ(share_lines(round_device(), {&row, 1}, {&cost, 1}).find("decode"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
