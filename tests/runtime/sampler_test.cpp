#include "runtime/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace plimsoll {
namespace {

Sampler make(const SamplingOptions& options, std::size_t vocab_size) {
    return Sampler::create(options, static_cast<std::uint32_t>(vocab_size)).value();
}

/// Logits of given probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

/// Draws many and compares with `expected` by Pearson's chi-squared; the bound is its mean plus six
/// deviations.
void expect_frequencies(const SamplingOptions& options, const std::vector<float>& logits,
                        const std::vector<double>& expected) {
    Sampler sampler = make(options, logits.size());
    constexpr int kDraws = 200'000;
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(*sampler.sample(logits))];
    double chi_squared = 0;
    double degrees = -1;
    for (std::size_t id = 0; id < expected.size(); ++id) {
        if (expected[id] == 0) {
            EXPECT_EQ(counts[id], 0) << "token " << id;
            continue;
        }
        const double mean = expected[id] * kDraws;
        chi_squared += (counts[id] - mean) * (counts[id] - mean) / mean;
        degrees += 1;
    }
    EXPECT_LT(chi_squared, degrees + 6 * std::sqrt(2 * degrees + 1)) << "seed " << options.seed;
}

TEST(Random, GivesTheNumbersOfTheReference) {
    // Computed apart, in Python integers, from the published recurrence.
    Random one(1);
    EXPECT_EQ(one.next(), 0x47E4CE4B896CDD1Dull);
    EXPECT_EQ(one.next(), 0xABCFA6A8E079651Dull);
    EXPECT_EQ(Random(0).next(), Random(0x9E3779B97F4A7C15ull).next());
}

TEST(Random, StaysBelowOne) {
    Random random(3);
    for (int i = 0; i < 100'000; ++i) {
        const float u = random.uniform();
        ASSERT_GE(u, 0.0f);
        ASSERT_LT(u, 1.0f);
    }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEqualMaxima) {
    const std::vector<float> logits = {1, 5, 3, 5, 5};
    Sampler sampler = make({.temperature = 0}, logits.size());
    EXPECT_EQ(*sampler.sample(logits), 1);
    EXPECT_EQ(*most_likely(logits), 1);
}

TEST(Sampler, DrawsTheModelsOwnDistributionByDefault) {
    const std::vector<double> p = {0.5, 0.25, 0.125, 0.1, 0.025};
    expect_frequencies({.seed = 5}, logits_of(p), p);
}

TEST(Sampler, SharpensAndFlattensWithTemperature) {
    const std::vector<double> p = {0.5, 0.3, 0.2};
    for (const double temperature : {0.5, 2.0}) {
        std::vector<double> expected;
        double sum = 0;
        for (const double x : p) sum += std::pow(x, 1 / temperature);
        for (const double x : p) expected.push_back(std::pow(x, 1 / temperature) / sum);
        expect_frequencies({.temperature = static_cast<float>(temperature), .seed = 6},
                           logits_of(p), expected);
    }
}

TEST(Sampler, KeepsTheMostLikelyK) {
    expect_frequencies({.top_k = 2, .seed = 7}, logits_of({0.1, 0.4, 0.3, 0.2}),
                       {0, 4.0 / 7, 3.0 / 7, 0});
}

TEST(Sampler, TopKOfEqualLogitsKeepsTheLowestIds) {
    expect_frequencies({.top_k = 2, .seed = 7}, {1, 1, 1, 1}, {0.5, 0.5, 0, 0});
}

TEST(Sampler, KeepsTheFewestTokensThatReachTopP) {
    const auto logits = logits_of({0.1, 0.4, 0.3, 0.2});
    expect_frequencies({.top_p = 0.6f, .seed = 8}, logits, {0, 4.0 / 7, 3.0 / 7, 0});
    expect_frequencies({.top_p = 0.75f, .seed = 8}, logits, {0, 4.0 / 9, 3.0 / 9, 2.0 / 9});
    expect_frequencies({.top_p = 0.01f, .seed = 8}, logits, {0, 1, 0, 0});
}

TEST(Sampler, DropsTokensFarLessLikelyThanTheBest) {
    const auto logits = logits_of({0.1, 0.4, 0.3, 0.2});
    expect_frequencies({.min_p = 0.6f, .seed = 9}, logits, {0, 4.0 / 7, 3.0 / 7, 0});
    expect_frequencies({.min_p = 1, .seed = 9}, logits, {0, 1, 0, 0});
}

TEST(Sampler, MeasuresTopPAfterTopKAndMinP) {
    // Of 0.4, 0.3, 0.2 (top-k 3) the first two have 7/9 of the mass.
    expect_frequencies({.top_k = 3, .top_p = 0.77f, .seed = 10}, logits_of({0.1, 0.4, 0.3, 0.2}),
                       {0, 4.0 / 7, 3.0 / 7, 0});
    expect_frequencies({.top_p = 0.56f, .min_p = 0.6f, .seed = 10}, logits_of({0.1, 0.4, 0.3, 0.2}),
                       {0, 1, 0, 0});
}

TEST(Sampler, RepeatsItselfWithTheSameSeed) {
    const auto logits = logits_of({0.25, 0.25, 0.25, 0.25});
    Sampler first = make({.seed = 42}, 4);
    Sampler second = make({.seed = 42}, 4);
    Sampler other = make({.seed = 43}, 4);
    int differing_count = 0;
    for (int i = 0; i < 1000; ++i) {
        const TokenId token = *first.sample(logits);
        ASSERT_EQ(token, *second.sample(logits));
        differing_count += token != *other.sample(logits);
    }
    EXPECT_GT(differing_count, 500);
}

TEST(Sampler, ReportsLogitsThatAreNotFinite) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
        std::vector<float> logits(8, 0.5f);
        logits[6] = bad;
        for (const float temperature : {0.0f, 1.0f}) {
            Sampler sampler = make({.temperature = temperature}, logits.size());
            const auto token = sampler.sample(logits);
            ASSERT_FALSE(token.ok());
            EXPECT_NE(token.error().message.find("token 6 of 8"), std::string::npos);
        }
    }
}

TEST(Sampler, StandsTheWidestLogitsAndTheLowestTemperature) {
    const float huge = std::numeric_limits<float>::max();
    const std::vector<float> logits = {-huge, huge, -huge};
    Sampler sampler = make({.temperature = 1e-30f, .top_p = 0.9f}, logits.size());
    EXPECT_EQ(*sampler.sample(logits), 1);
}

TEST(Sampler, RefusesOptionsOutOfRangeByName) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::map<const char*, SamplingOptions> cases = {
        {"temperature is -1", {.temperature = -1}},
        {"temperature is nan", {.temperature = nan}},
        {"top-p is 0", {.top_p = 0}},
        {"top-p is 1.5", {.top_p = 1.5f}},
        {"top-p is nan", {.top_p = nan}},
        {"min-p is -0.5", {.min_p = -0.5f}},
        {"min-p is 2", {.min_p = 2}},
    };
    for (const auto& [message, options] : cases) {
        const auto sampler = Sampler::create(options, 8);
        ASSERT_FALSE(sampler.ok()) << message;
        EXPECT_EQ(sampler.error().kind, ErrorKind::usage);
        EXPECT_EQ(sampler.error().message.rfind(message, 0), 0u) << sampler.error().message;
    }
}

TEST(Sampler, DrawsOnlyKeptTokensForAnyOptions) {
    const std::uint32_t seed = 21;
    std::mt19937 random(seed);
    for (int round = 0; round < 300; ++round) {
        std::vector<float> logits(1 + random() % 500);
        for (float& logit : logits) logit = static_cast<float>(random() % 2000) / 100.0f - 10;
        const auto top_k = static_cast<std::uint32_t>(1 + random() % logits.size());
        Sampler sampler = make({.top_k = top_k, .top_p = 0.9f, .min_p = 0.01f, .seed = round + 1u},
                               logits.size());
        for (int i = 0; i < 20; ++i) {
            const auto token = static_cast<std::size_t>(*sampler.sample(logits));
            std::size_t better_count = 0;
            for (const float logit : logits) better_count += logit > logits[token];
            ASSERT_LT(better_count, top_k) << "seed " << seed << " round " << round;
        }
    }
}

}  // namespace
}  // namespace plimsoll
