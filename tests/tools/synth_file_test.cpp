#include "tools/synth_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "planner/inventory.hpp"
#include "runtime/synthetic.hpp"
#include "tests/cli/temporary_folder.hpp"

namespace plimsoll::test {
namespace {

SyntheticModel tiny_model() {
    const std::string path = std::string(PLIMSOLL_CONFIGS) + "/models/tiny.yaml";
    const Result<Inventory> shape = parse_inventory(read_file(path), path);
    EXPECT_TRUE(shape.ok());
    Result<SyntheticModel> model = synthetic_model(*shape, 3);
    EXPECT_TRUE(model.ok());
    return std::move(*model);
}

bool keep_on(std::uint64_t) { return true; }

TEST(SynthFile, HasTheSameBytesFromAnyNumberOfThreads) {
    const TemporaryFolder folder;
    const SyntheticModel model = tiny_model();
    std::string first;
    for (const std::uint32_t threads : {1u, 2u, 7u}) {
        SynthJob job{.model = &model, .path = folder.file("model"), .threads = threads};
        job.ranges = all_ranges(model);
        ASSERT_TRUE(write_synthetic_file(job, keep_on).ok());
        const std::string bytes = read_file(job.path);
        EXPECT_EQ(bytes.size(), model.file_bytes);
        if (first.empty()) first = bytes;
        EXPECT_TRUE(bytes == first) << threads << " threads";
    }
    const Tensor& last = model.tensors.back();
    std::vector<std::byte> expected(last.size_bytes);
    SyntheticTensor(model.seed, last, model.hyper.n_experts).fill(0, expected);
    EXPECT_EQ(std::memcmp(first.data() + last.file_offset_bytes, expected.data(), expected.size()),
              0);
}

TEST(SynthFile, WritesTheRangesAndNothingElse) {
    const TemporaryFolder folder;
    const SyntheticModel model = tiny_model();
    SynthJob whole{.model = &model, .path = folder.file("whole"), .ranges = all_ranges(model)};
    ASSERT_TRUE(write_synthetic_file(whole, keep_on).ok());
    const std::string all = read_file(whole.path);
    // From inside one tensor to inside another, so that neither begins nor ends there.
    const std::uint64_t first = model.tensors[1].file_offset_bytes + 3;
    const std::uint64_t end = model.tensors[9].file_offset_bytes + 5;
    SynthJob part{.model = &model, .path = folder.file("part"), .ranges = {{first, end - first}}};
    ASSERT_TRUE(write_synthetic_file(part, keep_on).ok());
    std::string expected(all.size(), '\0');
    expected.replace(0, model.header.size(), model.header);
    expected.replace(first, end - first, all, first, end - first);
    EXPECT_TRUE(read_file(part.path) == expected);
}

TEST(SynthFile, LeavesNothingBehindWhenStopped) {
    const TemporaryFolder folder;
    const SyntheticModel model = tiny_model();
    SynthJob job{.model = &model, .path = folder.file("model")};
    // Work without end, as far as a test can wait.
    for (int time = 0; time < 200; ++time)
        for (const FileRange& range : all_ranges(model)) job.ranges.push_back(range);
    const Status stopped = write_synthetic_file(job, [](std::uint64_t) { return false; });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().kind, ErrorKind::interrupted);
    EXPECT_FALSE(std::filesystem::exists(job.path));
    EXPECT_FALSE(std::filesystem::exists(job.path + ".part"));
}

TEST(SynthFile, RefusesADiskWithoutRoomBeforeItWrites) {
    const TemporaryFolder folder;
    SyntheticModel model = tiny_model();
    Tensor& huge = model.tensors.back();
    huge.size_bytes = std::uint64_t{1} << 60;
    SynthJob job{.model = &model, .path = folder.file("model")};
    job.ranges = {{huge.file_offset_bytes, huge.size_bytes}};
    const Status refused = write_synthetic_file(job, keep_on);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("short by"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("--sparse"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(job.path + ".part"));
}

}  // namespace
}  // namespace plimsoll::test
