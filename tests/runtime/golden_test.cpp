#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

/// How two sets of logits compare, row by row.
struct Agreement {
    double largest_difference = 0;
    double within_1e2 = 0;   // share of rows whose largest difference is at most 1e-2
    double within_half = 0;  // the same for 0.5
    double cosine_median = 0;
    double cosine_low = 0;    // 5 % quantile
    double top1 = 0;          // share of rows with the same best token
    double top1_decided = 0;  // of those where the reference's best is 0.5 above its second
};

struct RowFigures {
    double difference = 0;
    double cosine = 0;
    bool same_best = false;
    bool is_decided = false;
};

RowFigures compare_row(std::span<const float> expected, std::span<const float> actual) {
    RowFigures row;
    double dot = 0, a = 0, b = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double x = static_cast<double>(expected[i]), y = static_cast<double>(actual[i]);
        row.difference = std::max(row.difference, std::fabs(x - y));
        dot += x * y;
        a += x * x;
        b += y * y;
    }
    row.cosine = dot / std::sqrt(a * b);
    const auto best = std::max_element(expected.begin(), expected.end());
    row.same_best =
        best - expected.begin() == std::max_element(actual.begin(), actual.end()) - actual.begin();
    float second = -INFINITY;
    for (auto at = expected.begin(); at != expected.end(); ++at)
        if (at != best) second = std::max(second, *at);
    row.is_decided = *best - second > 0.5f;
    return row;
}

/// `rows` names the positions of `expected`; `actual` has every position.
Agreement compare(const std::vector<float>& expected, const std::vector<std::uint64_t>& rows,
                  const std::vector<float>& actual, std::uint32_t vocab) {
    Agreement out;
    std::vector<double> cosines;
    double n_decided = 0;
    for (std::size_t index = 0; index < rows.size(); ++index) {
        const RowFigures row = compare_row(std::span(expected).subspan(index * vocab, vocab),
                                           std::span(actual).subspan(rows[index] * vocab, vocab));
        out.largest_difference = std::max(out.largest_difference, row.difference);
        out.within_1e2 += row.difference <= 1e-2;
        out.within_half += row.difference <= 0.5;
        out.top1 += row.same_best;
        out.top1_decided += row.same_best && row.is_decided;
        n_decided += row.is_decided;
        cosines.push_back(row.cosine);
    }
    std::sort(cosines.begin(), cosines.end());
    const auto n = static_cast<double>(rows.size());
    out.within_1e2 /= n;
    out.within_half /= n;
    out.top1 /= n;
    out.top1_decided /= n_decided;
    out.cosine_median = cosines[cosines.size() / 2];
    out.cosine_low = cosines[cosines.size() / 20];
    return out;
}

/// What must hold; measured limits of a correct program (see README.md of the data).
enum class Limits { exact, rounded, packed, quantised };

void expect_within(Limits limits, const GoldenCase& golden, const Agreement& figures,
                   const char* head) {
    SCOPED_TRACE(head);
    switch (limits) {
        case Limits::exact: EXPECT_LE(figures.largest_difference, 2e-3); break;
        case Limits::rounded:
            EXPECT_LE(figures.largest_difference, 0.1);
            EXPECT_GE(figures.within_1e2, 0.8);
            EXPECT_GE(figures.top1, 0.99);
            break;
        case Limits::packed:
            EXPECT_GE(figures.cosine_median, 0.9993);
            EXPECT_GE(figures.top1, 0.88);
            EXPECT_GE(figures.within_half, golden.is_sparse ? 0.65 : 0.9);
            break;
        case Limits::quantised:
            EXPECT_GE(figures.cosine_median, 0.9993);
            EXPECT_GE(figures.cosine_low, 0.965);
            EXPECT_GE(figures.top1, 0.85);
            EXPECT_GE(figures.top1_decided, 0.94);
            break;
    }
}

void expect_within(Limits limits, const GoldenCase& golden, const Logits& logits) {
    expect_within(limits, golden,
                  compare(golden.logits, golden.rows, logits.main, golden.vocab_size), "main");
    expect_within(limits, golden,
                  compare(golden.mtp_logits, golden.mtp_rows, logits.draft, golden.vocab_size),
                  "draft head");
}

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
