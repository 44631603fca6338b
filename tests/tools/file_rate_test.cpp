#include "tools/file_rate.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace plimsoll {
namespace {

TEST(FileRate, ReadsAWholeFileAndSaysHow) {
    const std::string path = testing::TempDir() + "plimsoll-file-rate";
    std::ofstream(path, std::ios::binary) << std::string(20'000'001, 'x');
    const Result<FileRate> rate = measure_file(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(rate) << rate.error().message;
    EXPECT_GT(rate->read_bytes_per_s, 0);
    EXPECT_NE(rate->how.find("19.07 MiB of it, "), std::string::npos) << rate->how;
}

TEST(FileRate, NamesAFileThatCannotBeRead) {
    const Result<FileRate> rate = measure_file("/no/such/file");
    ASSERT_FALSE(rate);
    EXPECT_EQ(rate.error().kind, ErrorKind::io);
    EXPECT_NE(rate.error().message.find("/no/such/file"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
