#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace plimsoll::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"planner", "kernels", "offload", "runtime", "tools"};

/// The headers that this program holds a source file of each for, from meson.build.
std::vector<std::string> listed_headers() {
    std::istringstream words(PLIMSOLL_HEADERS);
    std::vector<std::string> headers;
    for (std::string header; words >> header;) headers.push_back(header);
    return headers;
}

TEST(Headers, AreAllCompiledAloneAndTwice) {
    const std::vector<std::string> listed = listed_headers();
    const fs::path root = PLIMSOLL_SOURCE_ROOT;
    for (const char* folder : kFolders)
        for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
            if (entry.path().extension() != ".hpp") continue;
            const std::string header = fs::relative(entry.path(), root).string();
            EXPECT_NE(std::find(listed.begin(), listed.end(), header), listed.end())
                << header << " is not in tests/headers/meson.build: list it";
        }
}

TEST(Headers, AreListedInOrder) {
    const std::vector<std::string> listed = listed_headers();
    EXPECT_TRUE(std::is_sorted(listed.begin(), listed.end()))
        << *std::is_sorted_until(listed.begin(), listed.end()) << " is out of order";
}

}  // namespace
}  // namespace plimsoll::test
