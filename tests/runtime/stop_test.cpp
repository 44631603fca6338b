#include "runtime/stop.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

constexpr StopLimits kLimits = {.eos = 1, .max_tokens = 10, .context_tokens = 100};

TEST(Stop, EndsAtTheFirstLimitReached) {
    EXPECT_EQ(stop_after(kLimits, 7, 9, 99), std::nullopt);
    EXPECT_EQ(stop_after(kLimits, 1, 1, 20), StopReason::eos);
    EXPECT_EQ(stop_after(kLimits, 7, 10, 20), StopReason::max_tokens);
    EXPECT_EQ(stop_after(kLimits, 7, 5, 100), StopReason::context_full);
    EXPECT_EQ(stop_after(kLimits, 1, 10, 100), StopReason::eos);
}

TEST(Stop, TakesZeroMaxTokensAsNoLimit) {
    StopLimits limits = kLimits;
    limits.max_tokens = 0;
    EXPECT_EQ(stop_after(limits, 7, 1'000'000, 99), std::nullopt);
}

TEST(StopStrings, HoldsBackTheLongestBeginningOfAStop) {
    StopStrings stops = StopStrings::create({"END", "\n\nUser:"}).value();
    std::string out;
    EXPECT_FALSE(stops.push("text E", out));
    EXPECT_EQ(out, "text ");
    EXPECT_FALSE(stops.push("N", out));
    EXPECT_EQ(out, "text ");
    EXPECT_FALSE(stops.push("x\n", out));
    EXPECT_EQ(out, "text ENx");
    EXPECT_TRUE(stops.push("\nUser: more", out));
    EXPECT_EQ(out, "text ENx");
    EXPECT_TRUE(stops.push("later", out));
    stops.finish(out);
    EXPECT_EQ(out, "text ENx");
}

TEST(StopStrings, ReleasesWhatItHeldAtTheEnd) {
    StopStrings stops = StopStrings::create({"END"}).value();
    std::string out;
    EXPECT_FALSE(stops.push("the EN", out));
    stops.finish(out);
    EXPECT_EQ(out, "the EN");
}

TEST(StopStrings, FindsAStopThatBeginsInsideAFailedOne) {
    StopStrings stops = StopStrings::create({"aab"}).value();
    std::string out;
    EXPECT_TRUE(stops.push("aaab", out));
    EXPECT_EQ(out, "a");
}

TEST(StopStrings, LetsEverythingThroughWhereThereAreNone) {
    StopStrings stops = StopStrings::create({}).value();
    std::string out;
    EXPECT_FALSE(stops.push("abc", out));
    EXPECT_EQ(out, "abc");
}

TEST(StopStrings, RefusesEmptyAndHugeStrings) {
    EXPECT_FALSE(StopStrings::create({"a", ""}).ok());
    EXPECT_FALSE(StopStrings::create({std::string(65 << 10, 'x')}).ok());
}

/// The text before the stop string that ends first, the longest of those that end there.
std::string naive_cut(const std::string& text, const std::vector<std::string>& strings) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& stop : strings) {
            if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0) {
                longest = std::max(longest, stop.size());
            }
        }
        if (longest != 0) return text.substr(0, end - longest);
    }
    return text;
}

TEST(StopStrings, CutsAsASearchOfTheWholeTextDoes) {
    const std::uint32_t seed = 5;
    std::mt19937 random(seed);
    const auto random_text = [&](std::size_t size) {
        std::string text(size, 'a');
        for (char& c : text) c = static_cast<char>('a' + random() % 2);
        return text;
    };
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::string> strings;
        for (std::size_t i = random() % 4; i > 0; --i)
            strings.push_back(random_text(1 + random() % 7));
        const std::string text = random_text(random() % 60);
        StopStrings stops = StopStrings::create(strings).value();
        std::string out;
        for (std::size_t i = 0; i < text.size();) {
            const std::size_t size = 1 + random() % 5;
            (void)stops.push(std::string_view(text).substr(i, size), out);
            ASSERT_EQ(text.compare(0, out.size(), out), 0);
            i += size;
        }
        stops.finish(out);
        ASSERT_EQ(out, naive_cut(text, strings)) << "seed " << seed << " round " << round;
    }
}

}  // namespace
}  // namespace plimsoll
