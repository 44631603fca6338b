#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace plimsoll::test {
namespace {

using Json = nlohmann::json;

Json inspect_json(const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"inspect", model, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_plimsoll(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
}

void expect_one_line(const std::string& text) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

/// A file in the sources' format with made weights, or a failure.
std::string made_file(const TemporaryFolder& folder) {
    std::string path = folder.file("tiny.gguf");
    const Outcome made = run_plimsoll({"synth", "tiny", "-o", path, "--sparse"});
    EXPECT_EQ(made.status, 0) << made.err;
    return path;
}

TEST(Inspect, TellsThePublishedTotalsOfAnInventory) {
    const Json flash = inspect_json("flash-q2");
    EXPECT_TRUE(flash["file"].is_null());
    EXPECT_EQ(flash["tensor_count"], 1'328);
    EXPECT_EQ(flash["tensor_bytes"], 86'714'775'900u);
    EXPECT_EQ(flash["model"]["data_bytes"], 86'714'777'664u);
    EXPECT_EQ(flash["model"]["hyperparameters"]["expert_count"], 256);
    EXPECT_EQ(flash["experts"].size(), 1u);
    EXPECT_EQ(flash["experts"][0]["last_layer"], 42);
    EXPECT_EQ(flash["experts"][0]["slot_bytes"], 7'077'888);
    std::uint64_t bytes = 0, count = 0;
    for (const Json& row : flash["classes"]) {
        bytes += row["size_bytes"].get<std::uint64_t>();
        count += row["count"].get<std::uint64_t>();
    }
    EXPECT_EQ(bytes, flash["tensor_bytes"]);
    EXPECT_EQ(count, flash["tensor_count"]);
}

TEST(Inspect, ShowsTheSameNumbersAsText) {
    const Outcome outcome = run_plimsoll({"inspect", "flash-q2"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part : {"1,328", "86,714,775,900", "IQ2_XXS", "7,077,888", "embedding",
                             "experts", "compress_ratios", "layers 0 to 42"})
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " in\n" << outcome.out;
    EXPECT_EQ(outcome.out.find("blk.0.attn_q_a.weight"), std::string::npos);
}

TEST(Inspect, ListsEveryTensorWhenAsked) {
    const Json mtp = inspect_json("flash-mtp", {"--tensors"});
    ASSERT_EQ(mtp["tensors"].size(), 32u);
    EXPECT_EQ(mtp["model"]["kind"], "mtp");
    EXPECT_FALSE(mtp["model"]["hyperparameters"].contains("vocab_size"));
    const Outcome text = run_plimsoll({"inspect", "flash-q2", "--tensors"});
    EXPECT_NE(text.out.find("blk.42.ffn_down_exps.weight"), std::string::npos);
    EXPECT_NE(text.out.find("[2048, 4096, 256]"), std::string::npos);
}

TEST(Inspect, ShowsAFilesHeaderAndTheModelOfItsInventory) {
    const TemporaryFolder folder;
    const std::string path = made_file(folder);
    const Json file = inspect_json(path, {"--tensors"});
    const Json inventory = inspect_json("tiny", {"--tensors"});
    EXPECT_EQ(file["file"]["path"], path);
    EXPECT_EQ(file["file"]["alignment_bytes"], 32);
    EXPECT_EQ(file["file"]["file_bytes"].get<std::uint64_t>(),
              file["file"]["data_offset_bytes"].get<std::uint64_t>() +
                  file["model"]["data_bytes"].get<std::uint64_t>());
    for (const char* name : {"fingerprint", "hyperparameters", "data_bytes"})
        EXPECT_EQ(file["model"][name], inventory["model"][name]) << name;
    EXPECT_EQ(file["classes"], inventory["classes"]);
    EXPECT_EQ(file["experts"], inventory["experts"]);
    bool seen = false;
    for (const Json& entry : file["file"]["metadata"]) {
        if (entry["key"] != "tokenizer.ggml.tokens") continue;
        seen = true;
        EXPECT_EQ(entry["element_type"], "string");
        EXPECT_EQ(entry["count"], inventory["model"]["hyperparameters"]["vocab_size"]);
    }
    EXPECT_TRUE(seen);
    const Outcome text = run_plimsoll({"inspect", path});
    for (const char* part : {"general.architecture", "string[384]", "deepseek4"})
        EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
}

TEST(Inspect, ShowsASoundHeaderOfAnotherModelAndFails) {
    const TemporaryFolder folder;
    std::string bytes = read_file(made_file(folder));
    const std::size_t at = bytes.find("deepseek4");
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, 9, "shallowx4");
    const Outcome outcome = run_plimsoll({"inspect", folder.write("other.gguf", bytes)});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.out.find("shallowx4"), std::string::npos);
    EXPECT_NE(outcome.err.find("general.architecture"), std::string::npos) << outcome.err;
    expect_one_line(outcome.err);
}

TEST(Inspect, RefusesAHostileFileAtOnceInOneLine) {
    const TemporaryFolder folder;
    const std::string whole = read_file(made_file(folder));
    const std::vector<std::pair<std::string, std::string>> bad = {
        {"", "not a GGUF file"},
        {"<!DOCTYPE html>denied", "not a GGUF file"},
        {whole.substr(0, 23), "ends inside"},
        {whole.substr(0, 4'000), "tensor count"},
        {whole.substr(0, 12'000), "tensor name 47"},
        {whole.substr(0, 8) + std::string(8, '\xff') + whole.substr(16), "tensor count"},
        {whole.substr(0, whole.size() - 4'096), "tensor '"}};
    for (const auto& [bytes, told] : bad) {
        const std::string path = folder.write("bad.gguf", bytes);
        const auto start = std::chrono::steady_clock::now();
        const Outcome outcome = run_plimsoll({"inspect", path});
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        EXPECT_EQ(outcome.status, 2) << told;
        EXPECT_LT(taken.count(), 1.0);
        EXPECT_NE(outcome.err.find(told), std::string::npos) << outcome.err;
        EXPECT_NE(outcome.err.find(path), std::string::npos) << outcome.err;
        expect_one_line(outcome.err);
        EXPECT_TRUE(outcome.out.empty());
    }
}

TEST(Inspect, NamesWhatThereIsWhereTheModelIsUnknown) {
    const Outcome outcome = run_plimsoll({"inspect", "flash-q3"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find("flash-q2"), std::string::npos) << outcome.err;
    expect_one_line(outcome.err);
    EXPECT_EQ(run_plimsoll({"inspect", "/"}).status, 2);
    EXPECT_EQ(run_plimsoll({"inspect", "/dev/zero"}).status, 2);
    EXPECT_EQ(run_plimsoll({"inspect"}).status, 2);
}

}  // namespace
}  // namespace plimsoll::test
