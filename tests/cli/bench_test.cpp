#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace plimsoll::test {
namespace {

using Arguments = std::vector<std::string>;

Outcome bench_tiny(const Arguments& more) {
    Arguments arguments = {"bench", "tiny", "--device", "cpu", "--vram", "512MiB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_plimsoll(arguments);
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::vector<double> numbers_of(const std::string& line) {
    std::vector<double> numbers;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) numbers.push_back(std::stod(cell));
    return numbers;
}

TEST(Bench, PrintsARowForEachContextWithWhatWasFedToGetThere) {
    const Outcome outcome = bench_tiny({"--synthetic", "--ctx-start", "64", "--ctx-max", "256",
                                        "--gen-tokens", "8", "--threads", "2"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::vector<std::string> lines = lines_of(outcome.out);
    ASSERT_EQ(lines.size(), 4u) << outcome.out;
    EXPECT_EQ(lines[0], "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes");
    const double contexts[] = {64, 128, 256}, fed[] = {64, 56, 120};
    double cache_bytes = 0;
    for (std::size_t row = 0; row < 3; ++row) {
        const std::vector<double> cells = numbers_of(lines[row + 1]);
        ASSERT_EQ(cells.size(), 6u) << lines[row + 1];
        EXPECT_EQ(cells[0], contexts[row]);
        EXPECT_EQ(cells[1], fed[row]);
        EXPECT_GT(cells[2], 0);
        EXPECT_EQ(cells[3], 8);
        EXPECT_GT(cells[4], 0);
        EXPECT_GT(cells[5], cache_bytes);
        cache_bytes = cells[5];
    }
}

TEST(Bench, TellsTheTimeOfEachKindOfOp) {
    const Outcome outcome = bench_tiny({"--synthetic=7", "--ctx-start", "32", "--gen-tokens", "2",
                                        "--per-op", "--prefill-chunk", "256"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part : {"attention", "experts", "roofline", "1 token behind 34", "all",
                             "predicted", "decode_bandwidth_share"})
        EXPECT_NE(outcome.err.find(part), std::string::npos) << part;
}

TEST(Bench, FillsTheContextItHasRoomForWithoutGenerating) {
    const Outcome outcome = bench_tiny({"--synthetic", "--ctx-start", "32", "--gen-tokens", "0",
                                        "--per-op", "--ctx", "40", "--memory-report"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::vector<std::string> lines = lines_of(outcome.out);
    ASSERT_EQ(lines.size(), 2u) << outcome.out;
    EXPECT_EQ(numbers_of(lines[1])[3], 0);
    EXPECT_EQ(numbers_of(lines[1])[4], 0);
    EXPECT_NE(outcome.err.find("7 tokens behind 33"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("decode"), std::string::npos) << outcome.err;
}

TEST(Bench, SavesThePlanThatItCarriesOut) {
    const TemporaryFolder folder;
    const std::string path = folder.file("plan.yaml");
    const Arguments walk = {"--synthetic", "--ctx-start", "32", "--gen-tokens", "1"};
    Arguments saves = walk;
    saves.insert(saves.end(), {"-o", path});
    ASSERT_EQ(bench_tiny(saves).status, 0);
    Arguments launches = {"bench", "--plan", path};
    launches.insert(launches.end(), walk.begin(), walk.end());
    const Outcome launched = run_plimsoll(launches);
    ASSERT_EQ(launched.status, 0) << launched.err;
    EXPECT_EQ(lines_of(launched.out).size(), 2u);
    launches[4] = "--ctx-start=4096";
    launches.erase(launches.begin() + 5);
    EXPECT_EQ(run_plimsoll(launches).status, 2);
}

TEST(Bench, MakesNoWeightsForAModelThatHasThem) {
    const TemporaryFolder folder;
    const std::string model = folder.file("tiny.gguf");
    ASSERT_EQ(run_plimsoll({"synth", "tiny", "-o", model}).status, 0);
    const Arguments walk = {"--device", "cpu", "--vram", "512MiB", "--ctx-start", "32"};
    Arguments arguments = {"bench", model};
    arguments.insert(arguments.end(), walk.begin(), walk.end());
    EXPECT_EQ(run_plimsoll(arguments).status, 0);
    arguments.push_back("--synthetic");
    const Outcome refused = run_plimsoll(arguments);
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("has weights"), std::string::npos) << refused.err;
}

TEST(Bench, RefusesWhatItCannotWalkInOneLine) {
    const struct {
        Arguments more;
        const char* part;
    } cases[] = {
        {{"--synthetic", "--step-mul", "1"}, "--step-mul"},
        {{"--synthetic", "--step-mul", "2", "--step-incr", "64"}, "--step-incr"},
        {{"--synthetic", "--ctx-start", "128", "--ctx-max", "64"}, "--ctx-max"},
        {{"--synthetic", "--ctx-start", "0"}, "--ctx-start"},
        {{"--synthetic", "--gen-tokens", "-1"}, "--gen-tokens"},
        {{"--synthetic", "--ctx", "4096", "--ctx-start", "8192"}, "context of 8,320"},
        {{"--synthetic", "--ctx", "160", "--ctx-start", "32", "--per-op"}, "--per-op"},
        {{"--synthetic", "--step-incr", "64", "--ctx-max", "4096"}, "64 apart"},
        {{"--synthetic=x"}, "--synthetic"},
        {{"--synthetic", "-o", "-"}, "-o -"},
        {{}, "--synthetic"},
    };
    for (const auto& refused : cases) {
        const Outcome outcome = bench_tiny(refused.more);
        EXPECT_EQ(outcome.status, 2) << refused.part << "\n" << outcome.err;
        EXPECT_NE(outcome.err.find(refused.part), std::string::npos) << outcome.err;
        EXPECT_EQ(outcome.out, "") << refused.part;
    }
}

}  // namespace
}  // namespace plimsoll::test
