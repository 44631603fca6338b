#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace plimsoll::test {
namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

std::uint64_t file_bytes(const std::string& path) { return std::filesystem::file_size(path); }

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// A tiny model of noise, made once.
class Run : public testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = new TemporaryFolder;
        const Outcome made = run_plimsoll({"synth", "tiny", "-o", model(), "--mtp", mtp()});
        ASSERT_EQ(made.status, 0) << made.err;
    }
    static void TearDownTestSuite() { delete folder_; }

    static std::string model() { return folder_->file("tiny.gguf"); }
    static std::string mtp() { return folder_->file("tiny-mtp.gguf"); }

    /// A run that generates a few tokens, all on the device, with more arguments.
    static Outcome generate(const Arguments& more, const std::string& input = "") {
        return run_plimsoll(Arguments{"run", model(), "--device", "cpu", "--vram", "1GiB", "--ctx",
                                      "4096", "-n", "24"} +
                                more,
                            input);
    }
    /// A prompt of some hundred tokens.
    static std::string long_prompt() {
        std::string text;
        for (int i = 0; i < 60; ++i) text += "word " + std::to_string(i * 37) + ", ";
        return text;
    }
    /// Status 2 and one line that names `part`.
    static void expect_usage_error(const Outcome& outcome, const std::string& part) {
        EXPECT_EQ(outcome.status, 2) << outcome.err;
        EXPECT_EQ(outcome.out, "");
        EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
    }

    static TemporaryFolder* folder_;
};
TemporaryFolder* Run::folder_ = nullptr;

TEST_F(Run, PutsGeneratedTextAloneOnTheStandardOutput) {
    const Outcome outcome = generate({"-p", "Hello", "--greedy"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out, "");
    EXPECT_TRUE(contains(outcome.err, "plan: full")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "generated 24 tokens")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "predicted")) << outcome.err;
    for (const char* part : {"plan", "tokens", "seed"}) EXPECT_FALSE(contains(outcome.out, part));
    EXPECT_FALSE(contains(outcome.err, "\r")) << "progress where there is no terminal";
}

TEST_F(Run, TakesThePromptFromAnArgumentAFileOrTheStandardInput) {
    const std::string text = generate({"-p", "Hello there", "--greedy"}).out;
    const std::string file = folder_->write("prompt.txt", "Hello there\n");
    EXPECT_EQ(generate({"-f", file, "--greedy"}).out, text);
    EXPECT_EQ(generate({"--greedy"}, "Hello there").out, text);
    EXPECT_NE(generate({"-p", "Hello there", "--greedy", "--system", "Be brief."}).out, text);
    EXPECT_NE(generate({"-p", "Hello there", "--greedy", "--think"}).out, text);
    EXPECT_NE(generate({"-p", "Hello there", "--greedy", "--raw"}).out, text);
}

TEST_F(Run, GivesTheSameTextForTheSameSeed) {
    const std::string text = generate({"-p", "Hello", "--seed", "7"}).out;
    EXPECT_EQ(generate({"-p", "Hello", "--seed", "7"}).out, text);
    EXPECT_EQ(generate({"-p", "Hello", "--seed", "7", "--threads", "1"}).out, text);
    EXPECT_NE(generate({"-p", "Hello", "--seed", "8"}).out, text);
}

TEST_F(Run, GivesTheSameTextForEveryChunk) {
    const Arguments prompt = {"-p", long_prompt(), "--greedy"};
    const Outcome one_by_one = generate(prompt + Arguments{"--prefill-chunk", "1"});
    ASSERT_EQ(one_by_one.status, 0) << one_by_one.err;
    for (const char* chunk : {"7", "64", "256"}) {
        const Outcome outcome = generate(prompt + Arguments{"--prefill-chunk", chunk});
        ASSERT_EQ(outcome.status, 0) << outcome.err;
        EXPECT_EQ(outcome.out, one_by_one.out) << "chunk " << chunk;
    }
}

TEST_F(Run, GivesTheSameTextWithExpertsInHostSlots) {
    const Arguments prompt = {"-p", long_prompt(), "--greedy"};
    const Outcome on_device = generate(prompt);
    const std::string profile =
        folder_->write("host.yaml", "features:\n  experts:\n    tier: host\n");
    const Outcome streamed =
        generate(prompt + Arguments{"--profile", profile, "--host-mem", "1GiB"});
    ASSERT_EQ(streamed.status, 0) << streamed.err;
    EXPECT_TRUE(contains(streamed.err, "plan: spilled")) << streamed.err;
    EXPECT_TRUE(contains(streamed.err, " misses")) << streamed.err;
    EXPECT_EQ(streamed.out, on_device.out);
}

TEST_F(Run, LaunchesASavedPlanExactly) {
    const std::string first = folder_->file("first.yaml"), second = folder_->file("second.yaml");
    const Outcome saved = generate({"-p", "Hello", "--greedy", "-o", first});
    ASSERT_EQ(saved.status, 0) << saved.err;
    const Outcome launched =
        run_plimsoll({"run", "--plan", first, "-o", second, "-p", "Hello", "--greedy", "-n", "24"});
    ASSERT_EQ(launched.status, 0) << launched.err;
    EXPECT_EQ(launched.out, saved.out);
    EXPECT_EQ(read_file(second), read_file(first));
    expect_usage_error(run_plimsoll({"run", "--plan", first, "--ctx", "8192", "-p", "x"}), "--ctx");
}

TEST_F(Run, RefusesASavedPlanOfAnotherModel) {
    const std::string plan = folder_->file("plan.yaml");
    ASSERT_EQ(generate({"-p", "Hello", "-o", plan}).status, 0);
    expect_usage_error(run_plimsoll({"run", mtp(), "--plan", plan, "-p", "x"}), "");
    std::string changed = read_file(plan);
    const std::size_t at = changed.find("fingerprint:");
    ASSERT_NE(at, std::string::npos);
    const std::size_t digit = changed.find_first_of("0123456789abcdef", at + 15);
    changed[digit] = changed[digit] == '1' ? '2' : '1';
    changed.erase(changed.find("plan_hash:"));  // as someone who edits a plan is told to
    expect_usage_error(
        run_plimsoll({"run", "--plan", folder_->write("changed.yaml", changed), "-p", "x"}),
        "fingerprint");
}

TEST_F(Run, RefusesAPlanThatWasEditedIntoOneThatCannotBe) {
    const std::string plan = folder_->file("plan.yaml");
    ASSERT_EQ(generate({"-p", "Hello", "-o", plan}).status, 0);
    std::string text = read_file(plan);
    text.erase(text.find("plan_hash:"));  // as someone who edits a plan is told to
    const std::pair<const char*, const char*> kEdits[] = {
        {"context_tokens: 4096", "context_tokens: 2048"},
        {"chunk_tokens: 4096", "chunk_tokens: 512"},
        {"sessions: 1", "sessions: 2"},
        {"rounding: true", "rounding: false"},
        {"experts_total: 96", "experts_total: 97"},
        {"mtp: false", "mtp: true"}};
    for (const auto& [from, to] : kEdits) {
        std::string changed = text;
        const std::size_t at = changed.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        changed.replace(at, std::string(from).size(), to);
        expect_usage_error(
            run_plimsoll({"run", "--plan", folder_->write("edited.yaml", changed), "-p", "x"}),
            "edited.yaml");
    }
    EXPECT_EQ(
        run_plimsoll({"run", "--plan", folder_->write("same.yaml", text), "-p", "x", "-n", "2"})
            .status,
        0);
}

TEST_F(Run, WritesLogitsOfEveryFedPosition) {
    const std::string tokens = folder_->write("tokens.txt", "5 6 7 8 9 10 11");
    const std::string logits = folder_->file("logits"), drafts = folder_->file("drafts");
    const Arguments check = {"run",      model(), "--device",     "cpu",   "--vram",
                             "1GiB",     "--ctx", "4096",         "--mtp", mtp(),
                             "--tokens", tokens,  "--logits-out", logits,  "--mtp-logits-out",
                             drafts};
    const Outcome outcome = run_plimsoll(check);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    const std::uint64_t row_bytes = file_bytes(logits) / 7;
    EXPECT_EQ(file_bytes(logits) % 7, 0u);
    EXPECT_GT(row_bytes, 256 * sizeof(float));
    EXPECT_EQ(file_bytes(drafts), 6 * row_bytes);
    const std::string whole = read_file(logits);
    ASSERT_EQ(run_plimsoll(check + Arguments{"--prefill-chunk", "1"}).status, 0);
    EXPECT_EQ(read_file(logits), whole);
}

TEST_F(Run, StopsBeforeAStopString) {
    const std::string text = generate({"-p", "Hello", "--greedy"}).out;
    ASSERT_GT(text.size(), 4u);
    std::size_t at = 1;  // of a character in the middle, so that something remains
    while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    const Outcome cut = generate({"-p", "Hello", "--greedy", "--stop", text.substr(at)});
    EXPECT_EQ(cut.status, 0);
    EXPECT_EQ(cut.out, text.substr(0, at));
    EXPECT_TRUE(contains(cut.err, "stop string")) << cut.err;
}

TEST_F(Run, ReportsPlannedBesideMeasuredMemory) {
    const Outcome outcome = generate({"-p", "Hello", "--memory-report"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    for (const char* word : {"planned", "measured", "unaccounted", "cpu"}) {
        EXPECT_TRUE(contains(outcome.err, word)) << word << " in " << outcome.err;
    }
}

TEST_F(Run, RefusesWrongUsageInOneLine) {
    expect_usage_error(generate({"-p", ""}), "empty");
    expect_usage_error(generate({}, ""), "empty");
    expect_usage_error(generate({"-p", "x", "-f", "y"}), "--file");
    expect_usage_error(generate({"-f", "/nonexistent/prompt"}), "/nonexistent/prompt");
    expect_usage_error(generate({"-f", folder_->write("latin1", "caf\xE9")}), "UTF-8");
    expect_usage_error(generate({"-p", "x", "-o", "-"}), "-o -");
    expect_usage_error(generate({"-p", "x", "--top-p", "2"}), "top-p");
    expect_usage_error(generate({"-p", "x", "--stop", ""}), "stop string");
    expect_usage_error(generate({"-p", "x", "--mtp-logits-out", "y"}), "--mtp");
    expect_usage_error(run_plimsoll({"run", model(), "-n", "0", "-p", "x"}), "'0'");
    expect_usage_error(run_plimsoll({"run", "/nonexistent/model.gguf", "-p", "x"}),
                       "/nonexistent/model.gguf");
    expect_usage_error(run_plimsoll({"run", "flash-q2", "--vram", "200GiB", "-p", "x"}),
                       "without weights");
}

TEST_F(Run, RefusesAPromptLongerThanTheContextWithTheNumbers) {
    std::string ids;
    for (int i = 0; i < 4096; ++i) ids += "5 ";
    const Outcome outcome = generate({"--tokens", folder_->write("long.txt", ids)});
    expect_usage_error(outcome, "4,096");
    EXPECT_TRUE(contains(outcome.err, "--ctx 4097")) << outcome.err;
}

TEST_F(Run, RefusesTokensOutsideTheVocabulary) {
    expect_usage_error(generate({"--tokens", folder_->write("ids.txt", "5 99999999")}), "99999999");
}

TEST_F(Run, ExitsWithThreeWhereItDoesNotFit) {
    const Outcome outcome =
        run_plimsoll({"run", model(), "--device", "cpu", "--vram", "1MiB", "-p", "x"});
    EXPECT_EQ(outcome.status, 3) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "short by")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
}

TEST_F(Run, ExitsWithFourWhereStrictIsNotFull) {
    const std::string profile =
        folder_->write("strict.yaml", "features:\n  experts:\n    tier: host\n");
    const Outcome outcome =
        generate({"--strict", "--profile", profile, "--host-mem", "1GiB", "-p", "x"});
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_EQ(outcome.out, "");
}

TEST_F(Run, RefusesDevicesItCannotExecuteOn) {
    expect_usage_error(run_plimsoll({"run", model(), "--device", "rtx-4090-24gb", "-p", "x"}),
                       "--device cpu");
}

TEST_F(Run, SaysWhatItDoesNotDo) {
    const Outcome drafts = generate({"-p", "x", "--greedy", "--mtp", mtp()});
    ASSERT_EQ(drafts.status, 0) << drafts.err;
    EXPECT_TRUE(contains(drafts.err, "drafts are not used")) << drafts.err;
    EXPECT_EQ(drafts.out, generate({"-p", "x", "--greedy"}).out);
    const Outcome think = generate({"-p", "x", "--think-max"});
    EXPECT_TRUE(contains(think.err, "393,216")) << think.err;
}

}  // namespace
}  // namespace plimsoll::test
