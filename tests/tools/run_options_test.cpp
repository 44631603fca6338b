#include "tools/run_options.hpp"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

/// The options of an argument list, or what the parser says.
Result<RunOptions> parse(std::vector<std::string> arguments) {
    CLI::App app;
    RunOptions options;
    add_run_options(app, options);
    std::reverse(arguments.begin(), arguments.end());
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& problem) {
        return Error{ErrorKind::usage, problem.what()};
    }
    return options;
}

TEST(RunOptions, GoToTheFieldsTheyName) {
    const Result<RunOptions> options =
        parse({"--stop", "a", "-p", "hello", "--think", "-n", "7", "--top-k", "40", "--seed", "9",
               "--stop", "b", "--threads", "3", "--memory-report"});
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(options->prompt, "hello");
    EXPECT_EQ(options->think, ThinkMode::high);
    EXPECT_EQ(options->max_tokens, 7u);
    EXPECT_EQ(options->sampling.top_k, 40u);
    EXPECT_EQ(options->sampling.seed, 9u);
    EXPECT_EQ(options->stops, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(options->threads, 3u);
    EXPECT_TRUE(options->memory_report);
}

TEST(RunOptions, RefuseWhatContradictsItself) {
    const std::vector<std::vector<std::string>> pairs = {
        {"-p", "a", "-f", "b"},
        {"-p", "a", "--tokens", "b"},
        {"-f", "a", "--tokens", "b"},
        {"--think", "--no-think"},
        {"--think-max", "--think"},
        {"--greedy", "--temp", "0.5"},
        {"--seed", "1", "--greedy"},
        {"--raw", "--system", "s"},
        {"--tokens", "f", "--system", "s"},
        {"--tokens", "f", "--think"},
        {"--raw", "--tokens", "f"},
    };
    for (const std::vector<std::string>& arguments : pairs) {
        EXPECT_FALSE(parse(arguments)) << testing::PrintToString(arguments);
    }
}

TEST(RunOptions, RefuseNumbersOutOfRange) {
    const std::vector<std::vector<std::string>> bad = {
        {"-n", "0"},           {"-n", "-1"},      {"-n", "x"},       {"--threads", "0"},
        {"--threads", "2000"}, {"--top-k", "-1"}, {"--seed", "1.5"}, {"--temp", "warm"},
    };
    for (const std::vector<std::string>& arguments : bad) {
        EXPECT_FALSE(parse(arguments)) << testing::PrintToString(arguments);
    }
}

TEST(RunOptions, ReadTheStandardInputWhereItIsNoTerminal) {
    EXPECT_EQ(prompt_source({}, true), PromptSource::chat);
    EXPECT_EQ(prompt_source({}, false), PromptSource::standard_input);
    EXPECT_EQ(prompt_source({.prompt = "p"}, true), PromptSource::argument);
    EXPECT_EQ(prompt_source({.token_path = "t"}, false), PromptSource::tokens);
}

TEST(RunOptions, RefuseSamplingWhereNothingIsGenerated) {
    const RunOptions check{.token_path = "t", .greedy = true, .logits_path = "l"};
    const Status refused = check_run_options(check, PromptSource::tokens);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("--greedy has no effect"), std::string::npos);
    RunOptions both = check;
    both.max_tokens = 4;
    EXPECT_TRUE(check_run_options(both, PromptSource::tokens));
}

TEST(RunOptions, RefuseLogitsOfAConversation) {
    EXPECT_FALSE(check_run_options({.logits_path = "l"}, PromptSource::chat));
    EXPECT_FALSE(check_run_options({.raw = true}, PromptSource::chat));
}

TEST(RunOptions, RefuseSamplingAndStopsOutOfRangeBeforeLoading) {
    RunOptions options;
    options.sampling.top_p = 1.5;
    EXPECT_FALSE(check_run_options(options, PromptSource::argument));
    options.sampling.top_p = 0.5;
    EXPECT_TRUE(check_run_options(options, PromptSource::argument));
    options.stops = {""};
    EXPECT_FALSE(check_run_options(options, PromptSource::argument));
}

TEST(RunOptions, LetTheCommandLineBeatTheProfile) {
    const SamplingDefaults profile{.temperature = 0.7, .top_p = 0.9, .top_k = 50};
    RunOptions options;
    options.sampling.temperature = 0.2;
    const SamplingOptions merged = sampling_options(options, profile, 11);
    EXPECT_FLOAT_EQ(merged.temperature, 0.2f);
    EXPECT_FLOAT_EQ(merged.top_p, 0.9f);
    EXPECT_EQ(merged.top_k, 50u);
    EXPECT_EQ(merged.seed, 11u);
}

TEST(RunOptions, DrawFromTheModelsOwnDistributionByDefault) {
    EXPECT_EQ(sampling_options({}, {}, 5), (SamplingOptions{.temperature = 1, .seed = 5}));
    EXPECT_EQ(sampling_options({.greedy = true}, {.temperature = 0.7}, 5).temperature, 0.0f);
}

}  // namespace
}  // namespace plimsoll
