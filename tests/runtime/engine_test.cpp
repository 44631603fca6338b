#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "planner/units.hpp"
#include "tests/runtime/allocation_count.hpp"
#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

std::size_t best_of(std::span<const float> logits) {
    return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

TEST(AllocationCount, SeesAnAllocation) {
    const std::uint64_t before = allocation_count();
    const auto memory = std::make_unique<std::vector<int>>(100);
    EXPECT_GE(allocation_count() - before, 2u);
    EXPECT_EQ(memory->size(), 100u);
}

TEST(Engine, AllocatesNothingBetweenTheFirstAndTheHundredthDecodedToken) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    for (const bool at_the_floor : {false, true}) {
        SCOPED_TRACE(at_the_floor);
        RunSetting setting{.chunk_tokens = 32, .host_bytes = 64 * kMiB};
        if (at_the_floor)
            setting.change = [](Request& request) {
                request.experts.set(Placement::host, Source::cli);
                request.experts_wish.value = Wish::require;
            };
        PlannedEngine planned(models, plan_of_case(models, setting));
        Engine& engine = planned.engine;
        for (std::size_t at = 0; at + 32 <= golden.tokens.size(); at += 32)
            (void)engine.feed(std::span(golden.tokens).subspan(at, 32));
        TokenId token = 0;
        const std::uint64_t before = allocation_count();
        for (int index = 0; index < 100; ++index)
            token = static_cast<TokenId>(best_of(*engine.feed({&token, 1})));
        EXPECT_EQ(allocation_count() - before, 0u);
    }
}

TEST(Engine, PrefillsWithoutAllocating) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 64}));
    const std::uint64_t before = allocation_count();
    for (std::size_t at = 0; at < 256; at += 64)
        (void)planned.engine.feed(std::span(golden.tokens).subspan(at, 64));
    EXPECT_EQ(allocation_count() - before, 0u);
}

TEST(Engine, FeedGivesTheLastRowOfFeedAll) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 64, .mtp = true}));
    const std::span<const TokenId> prompt = std::span(golden.tokens).first(64);
    const std::vector<float> all = feed(planned, prompt).main;
    ASSERT_TRUE(planned.engine.reset());
    const std::span<const float> last = *planned.engine.feed(prompt);
    EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - golden.vocab_size));
}

TEST(Engine, EndsFeedingWhereTheSinkFails) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 64}));
    std::uint64_t calls = 0;
    const Status fed = planned.engine.feed_all(std::span(golden.tokens).first(10),
                                               [&](std::uint64_t position, auto) -> Status {
                                                   ++calls;
                                                   if (position < 3) return ok_status();
                                                   return Error{ErrorKind::io, "no room"};
                                               });
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().message, "no room");
    EXPECT_EQ(calls, 4u);
}

/// The tokens of a case over and over.
std::vector<TokenId> long_prompt(const GoldenCase& golden, std::size_t n_tokens) {
    std::vector<TokenId> tokens;
    while (tokens.size() < n_tokens)
        tokens.push_back(golden.tokens[tokens.size() * 7 % golden.tokens.size()]);
    return tokens;
}

/// Long enough that every kind of cache turns over many times; a sanitizer is some ten times
/// slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kLongPromptTokens = 2'500;
#else
constexpr std::size_t kLongPromptTokens = 16'300;
#endif

TEST(Engine, ALongPromptGivesTheSameTextInAnyChunkWithoutGrowing) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    const std::vector<TokenId> prompt = long_prompt(golden, kLongPromptTokens);
    std::vector<TokenId> first_text;
    for (const std::uint64_t chunk : {2048u, 256u, 64u}) {
        SCOPED_TRACE(chunk);
        PlannedEngine planned(
            models, plan_of_case(models, {.chunk_tokens = chunk, .context_tokens = 16'384}));
        const std::uint64_t before = allocation_count();
        const std::vector<TokenId> text = generate(planned, prompt, 64);
        EXPECT_LE(allocation_count() - before, 8u);  // of the vector that takes the text
        if (first_text.empty()) first_text = text;
        EXPECT_EQ(text, first_text);
    }
}

TEST(EngineDeathTest, StopsAtMoreTokensThanPlanned) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    // The engine has threads of its own.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    PlannedEngine planned(models, plan_of_case(models, {.chunk_tokens = 16}));
    EXPECT_DEATH((void)planned.engine.feed(std::span(golden.tokens).first(17)),
                 "17 tokens are fed at once and 16 are planned");
}

TEST(MemoryReport, HoldsWhatThePlanSaysAgainstWhatIsResident) {
    const GoldenCase golden = read_golden_case("tiny-q2");
    const CaseModels& models = models_of_case("tiny-q2");
    PlannedEngine planned(
        models,
        plan_of_case(models,
                     {.chunk_tokens = 64, .host_bytes = 64 * kMiB, .change = [](Request& request) {
                          request.experts.set(Placement::host, Source::cli);
                      }}));
    (void)feed(planned, golden.tokens);
    const std::string report = planned.engine.memory_report();
    for (const Arena* arena : {&planned.plan->devices[0].arena, &planned.plan->host.arena}) {
        EXPECT_NE(report.find(arena->name + " "), std::string::npos) << report;
        EXPECT_NE(report.find(format_bytes(arena->planned_bytes)), std::string::npos) << report;
    }
    EXPECT_NE(report.find("expert_weights"), std::string::npos) << report;
}

}  // namespace
}  // namespace plimsoll::test
