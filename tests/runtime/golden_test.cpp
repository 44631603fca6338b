#include <gtest/gtest.h>

#include "tests/runtime/engine_runs.hpp"
#include "tests/runtime/golden_limits.hpp"

namespace plimsoll::test {
namespace {

class Golden : public testing::TestWithParam<const char*> {
protected:
    const GoldenCase golden_ = read_golden_case(GetParam());
    const CaseModels& models_ = models_of_case(GetParam());

    /// In any division of the prompt the same bits. Token by token a prompt of mid is long, so that
    /// its first tokens must do.
    void expect_same_in_pieces(PlannedEngine& planned, const Logits& together) const {
        constexpr std::size_t kTokensOneByOne = 300;
        EXPECT_EQ(feed(planned, golden_.tokens, 37), together);
        if (golden_.tokens.size() <= kTokensOneByOne) {
            EXPECT_EQ(feed(planned, golden_.tokens, 1), together);
            return;
        }
        const std::span<const TokenId> start = std::span(golden_.tokens).first(150);
        EXPECT_EQ(feed(planned, start, 1), feed(planned, start));
    }

    [[nodiscard]] RunSetting setting(bool precise, KvFormat format) const {
        return {.chunk_tokens = 1024,
                .precise = precise,
                .rounding = golden_.rounding,
                .kv_format = format,
                .mtp = true};
    }
};
INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         testing::Values("tiny-f16", "tiny-f16-rounded", "tiny-q2", "tiny-q4",
                                         "mid-q2"));

TEST_P(Golden, PreciseLogitsMatchInAnyChunks) {
    PlannedEngine planned(models_, plan_of_case(models_, setting(true, KvFormat::f32)));
    const Logits together = feed(planned, golden_.tokens);
    expect_within(golden_.rounding ? Limits::rounded : Limits::exact, golden_, together);
    expect_same_in_pieces(planned, together);
}

TEST_P(Golden, FastLogitsMatchInAnyChunks) {
    const KvFormat format = golden_.rounding ? KvFormat::packed : KvFormat::f32;
    PlannedEngine planned(models_, plan_of_case(models_, setting(false, format)));
    const Logits together = feed(planned, golden_.tokens);
    expect_within(Limits::quantised, golden_, together);
    expect_same_in_pieces(planned, together);
}

TEST(GoldenRows, PackedRowsAloneStayWithinTheirLimits) {
    // All weights are F16, so the fast mode quantises nothing and only the cache differs.
    const GoldenCase golden = read_golden_case("tiny-f16-rounded");
    const CaseModels& models = models_of_case(golden.name);
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 1024, .mtp = true}));
    ASSERT_EQ(planned.plan->grant.kv_format, KvFormat::packed);
    expect_within(Limits::packed, golden, feed(planned, golden.tokens));
}

TEST(GoldenCanary, LogitsWithoutTheCacheRoundingAreToldApart) {
    const GoldenCase golden = read_golden_case("tiny-f16-rounded");
    const CaseModels& models = models_of_case(golden.name);
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 1024,
                                                        .precise = true,
                                                        .rounding = false,
                                                        .kv_format = KvFormat::f32}));
    const Agreement figures =
        compare(golden.logits, golden.rows, feed(planned, golden.tokens).main, golden.vocab_size);
    EXPECT_GT(figures.largest_difference, 0.1);
    EXPECT_LT(figures.cosine_median, 0.9993);
}

}  // namespace
}  // namespace plimsoll::test
