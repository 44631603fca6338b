#include "tests/runtime/golden_limits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

namespace plimsoll::test {
namespace {

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

}  // namespace

Agreement compare(const std::vector<float>& expected, const std::vector<std::uint64_t>& rows,
                  const std::vector<float>& actual, std::uint32_t vocab) {
    Agreement out;
    std::vector<double> cosines;
    double n_decided = 0;
    for (std::size_t index = 0; index < rows.size(); ++index) {
        if ((rows[index] + 1) * vocab > actual.size()) continue;
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
    if (cosines.empty()) throw std::runtime_error("no row to compare");
    const auto n = static_cast<double>(cosines.size());
    out.within_1e2 /= n;
    out.within_half /= n;
    out.top1 /= n;
    out.top1_decided /= std::max(n_decided, 1.0);
    out.cosine_median = cosines[cosines.size() / 2];
    out.cosine_low = cosines[cosines.size() / 20];
    return out;
}

void expect_within(Limits limits, const GoldenCase& golden, const Logits& logits) {
    expect_within(limits, golden,
                  compare(golden.logits, golden.rows, logits.main, golden.vocab_size), "main");
    if (logits.draft.empty()) return;
    expect_within(limits, golden,
                  compare(golden.mtp_logits, golden.mtp_rows, logits.draft, golden.vocab_size),
                  "draft head");
}

}  // namespace plimsoll::test
