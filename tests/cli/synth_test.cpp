#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

namespace plimsoll::test {
namespace {

std::uint64_t bytes_on_disk(const std::string& path) {
    struct stat facts = {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
}

TEST(Synth, MakesTheSameFileForTheSameSeed) {
    const TemporaryFolder folder;
    const std::string a = folder.file("a.gguf"), b = folder.file("b.gguf"),
                      c = folder.file("c.gguf");
    EXPECT_EQ(run_plimsoll({"synth", "tiny", "-o", a}).status, 0);
    EXPECT_EQ(run_plimsoll({"synth", "tiny", "-o", b}).status, 0);
    EXPECT_EQ(run_plimsoll({"synth", "tiny", "-o", c, "--seed", "2"}).status, 0);
    EXPECT_EQ(read_file(a), read_file(b));
    EXPECT_NE(read_file(a), read_file(c));
    EXPECT_EQ(read_file(a).size(), read_file(c).size());
}

TEST(Synth, ASparseFileOfFullSizeTakesNoRoomAndPlansLikeTheInventory) {
    const TemporaryFolder folder;
    const std::string path = folder.file("flash.gguf"), mtp = folder.file("mtp.gguf");
    const Outcome made = run_plimsoll({"synth", "flash-q2", "-o", path, "--mtp", mtp, "--sparse"});
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_GT(std::filesystem::file_size(path), 80ull << 30);
    EXPECT_LT(bytes_on_disk(path), 16u << 20);
    EXPECT_EQ(std::filesystem::file_size(mtp), 3'807'602'400u) << "the published size";
    const auto sizes = [](const std::string& model) {
        std::string out = run_plimsoll({"fit", model, "--device", "rtx-4090-24gb", "--host-mem",
                                        "64GiB", "--json"})
                              .out;
        return out.substr(0, out.find("\"plan_hash\""));
    };
    EXPECT_EQ(sizes(path), sizes("flash-q2"));
}

TEST(Synth, OnlyWritesWhatAPlanReads) {
    const TemporaryFolder folder;
    const std::string plan = folder.file("plan.yaml"), whole = folder.file("whole.gguf"),
                      part = folder.file("part.gguf");
    ASSERT_EQ(run_plimsoll({"synth", "tiny", "-o", whole}).status, 0);
    ASSERT_EQ(run_plimsoll({"fit", "tiny", "--device", "cpu", "--vram", "1GiB", "-o", plan}).status,
              0);
    const Outcome made = run_plimsoll({"synth", "tiny", "-o", part, "--only", plan});
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(read_file(part), read_file(whole)) << "a plan reads all of its model";
    const Outcome other = run_plimsoll({"synth", "mid", "-o", part, "--only", plan});
    EXPECT_EQ(other.status, 2);
    EXPECT_NE(other.err.find("--only"), std::string::npos) << other.err;
}

TEST(Synth, LeavesNothingBehindWhereItFails) {
    const TemporaryFolder folder;
    const std::vector<std::pair<std::vector<std::string>, std::string>> bad = {
        {{"no-such-shape", "-o", folder.file("x")}, "no-such-shape"},
        {{"tiny", "-o", folder.file("no/such/folder.gguf")}, "no/such"},
        {{"tiny-mtp", "-o", folder.file("x"), "--mtp", folder.file("y")}, "--mtp"},
        {{"tiny", "-o", folder.file("x"), "--mtp", folder.file("x")}, "--mtp"},
        {{"tiny", "-o", folder.file("x"), "--seed", "-1"}, "--seed"},
        {{"pro-q2", "-o", folder.file("x"), "--sparse"}, "384"},
        {{folder.write("case.json", "{}"), "-o", folder.file("x")}, "case.json"}};
    for (const auto& [arguments, named] : bad) {
        std::vector<std::string> all = {"synth"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        const Outcome outcome = run_plimsoll(all);
        EXPECT_EQ(outcome.status, 2) << named;
        EXPECT_NE(outcome.err.find(named), std::string::npos) << outcome.err;
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    }
    EXPECT_FALSE(std::filesystem::exists(folder.file("x")));
    EXPECT_FALSE(std::filesystem::exists(folder.file("x.part")));
}

}  // namespace
}  // namespace plimsoll::test
