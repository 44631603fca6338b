#include "offload/disk_probe.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace plimsoll::offload {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20;

/// A folder of its own for a test, removed with all in it.
class DiskProbeTest : public testing::Test {
protected:
    DiskProbeTest() {
        std::string name = (fs::temp_directory_path() / "plimsoll-disk-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << strerror(errno);
        folder_ = name;
    }
    ~DiskProbeTest() override {
        std::error_code ignored;
        fs::remove_all(folder_, ignored);
    }

    [[nodiscard]] std::string file_of(std::uint64_t size_bytes) const {
        const std::string path = folder_ / "file";
        std::ofstream(path, std::ios::binary) << std::string(size_bytes, 'x');
        return path;
    }

    fs::path folder_;
};

TEST_F(DiskProbeTest, ReadsEveryByteOfAFileOnce) {
    // The last block is short, and no multiple of what O_DIRECT asks for.
    constexpr std::uint64_t kSizeBytes = 3 * kMiB + 12345;
    const IoResult<DiskRate> rate = measure_disk({.path = file_of(kSizeBytes), .seconds_max = 60});
    ASSERT_TRUE(rate.ok()) << describe(rate.error());
    EXPECT_EQ(rate->read_bytes, kSizeBytes);
    EXPECT_GT(rate->read_bytes_per_s, 0);
    EXPECT_GT(rate->seconds, 0);
}

TEST_F(DiskProbeTest, ReadsAsMuchByThreadsAndThroughTheCache) {
    constexpr std::uint64_t kSizeBytes = 2 * kMiB + 1;
    const std::string path = file_of(kSizeBytes);
    for (const bool direct : {false, true})
        for (const bool ring : {false, true}) {
            SCOPED_TRACE(std::string(direct ? "direct" : "cached") + (ring ? " ring" : " threads"));
            const IoResult<DiskRate> rate =
                measure_disk({.path = path, .seconds_max = 60, .direct = direct, .ring = ring});
            ASSERT_TRUE(rate.ok()) << describe(rate.error());
            EXPECT_EQ(rate->read_bytes, kSizeBytes);
            // What was not asked for is not used, and not reported as a fallback either.
            EXPECT_LE(rate->direct, direct);
            EXPECT_LE(rate->ring, ring);
            EXPECT_EQ(rate->fallback.empty(), rate->direct == direct && rate->ring == ring)
                << rate->fallback;
        }
}

TEST_F(DiskProbeTest, LeavesNothingInTheFolderItMeasures) {
    const IoResult<DiskRate> rate =
        measure_disk({.path = folder_, .span_bytes = 8 * kMiB, .seconds_max = 60});
    ASSERT_TRUE(rate.ok()) << describe(rate.error());
    EXPECT_EQ(rate->read_bytes, 8 * kMiB);
    EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DiskProbeTest, WorksAtDepthOneAndWithMoreDepthThanBlocks) {
    const std::string path = file_of(kMiB);
    for (const std::uint32_t depth : {1u, 256u}) {
        const IoResult<DiskRate> rate =
            measure_disk({.path = path, .depth = depth, .seconds_max = 60});
        ASSERT_TRUE(rate.ok()) << describe(rate.error());
        EXPECT_EQ(rate->read_bytes, kMiB);
    }
}

TEST_F(DiskProbeTest, BeginsNoReadAfterItsTimeIsUp) {
    const IoResult<DiskRate> rate = measure_disk({.path = file_of(kMiB), .seconds_max = 0});
    ASSERT_TRUE(rate.ok()) << describe(rate.error());
    EXPECT_EQ(rate->read_bytes, 0u);
    EXPECT_EQ(rate->read_bytes_per_s, 0);
}

TEST_F(DiskProbeTest, SaysWhichCallFailedOnWhat) {
    const IoResult<DiskRate> missing = measure_disk({.path = folder_ / "nothing"});
    ASSERT_FALSE(missing.ok());
    EXPECT_EQ(missing.error().error_number, ENOENT);
    EXPECT_NE(describe(missing.error()).find("nothing: No such file"), std::string::npos)
        << describe(missing.error());
    const IoResult<DiskRate> empty = measure_disk({.path = file_of(0)});
    ASSERT_FALSE(empty.ok());
    EXPECT_EQ(empty.error().error_number, ENODATA);
}

TEST_F(DiskProbeTest, RefusesAProbeThatAsksForNothing) {
    const std::string path = file_of(kMiB);
    for (const DiskProbe& probe :
         {DiskProbe{.path = path, .span_bytes = 0}, DiskProbe{.path = path, .block_bytes = 0},
          DiskProbe{.path = path, .block_bytes = 1000}, DiskProbe{.path = path, .depth = 0},
          DiskProbe{.path = path, .depth = ~0u}}) {
        const IoResult<DiskRate> rate = measure_disk(probe);
        ASSERT_FALSE(rate.ok());
        EXPECT_EQ(rate.error().error_number, EINVAL);
    }
}

TEST(IoError, NamesTheByteRangeOfAReadAndTheEndOfAFile) {
    EXPECT_EQ(describe({.action = "read",
                        .path = "/m.gguf",
                        .error_number = EIO,
                        .offset_bytes = 8192,
                        .size_bytes = 4096}),
              "read of 4096 bytes at 8192 of /m.gguf: Input/output error");
    EXPECT_EQ(describe({.action = "read", .path = "/m.gguf", .offset_bytes = 1, .size_bytes = 2}),
              "read of 2 bytes at 1 of /m.gguf: the file ends before that");
}

}  // namespace
}  // namespace plimsoll::offload
