#include "tools/progress.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace plimsoll {
namespace {

constexpr std::uint64_t kGibibyte = 1ull << 30;

ProgressState half_loaded() {
    return {.label = "loading",
            .unit = ProgressUnit::bytes,
            .done = 40 * kGibibyte,
            .total = 80 * kGibibyte,
            .elapsed_seconds = 20};
}

TEST(Progress, ShowsShareAmountRateAndTimeLeft) {
    const std::string text = progress_text(half_loaded(), 120);
    EXPECT_EQ(text.rfind("loading  [###############               ]  50 %  40", 0), 0u) << text;
    EXPECT_NE(text.find("/s  0:20 left"), std::string::npos) << text;
}

TEST(Progress, CountsTokensInWords) {
    const std::string text = progress_text({.label = "prefill",
                                            .unit = ProgressUnit::tokens,
                                            .done = 2048,
                                            .total = 131072,
                                            .elapsed_seconds = 1},
                                           120);
    EXPECT_NE(text.find("2,048 of 131,072 tokens  2,048 tokens/s  1:03 left"), std::string::npos)
        << text;
}

TEST(Progress, FitsAnyWidth) {
    for (std::uint32_t columns = 0; columns < 130; ++columns) {
        const std::string text = progress_text(half_loaded(), columns);
        EXPECT_LE(display_columns(text), columns == 0 ? 0 : columns - 1) << columns;
        if (columns >= 32) {
            EXPECT_NE(text.find("50 %"), std::string::npos) << columns;
        }
    }
}

TEST(Progress, StandsNothingToDoAndMoreThanAll) {
    EXPECT_NE(progress_text({.label = "x"}, 80).find("100 %"), std::string::npos);
    EXPECT_NE(progress_text({.label = "x", .done = 9, .total = 3, .elapsed_seconds = 1}, 80)
                  .find("100 %"),
              std::string::npos);
}

TEST(ProgressLine, WritesNothingWhereThereIsNoTerminal) {
    std::FILE* file = std::tmpfile();
    ASSERT_NE(file, nullptr);
    {
        ProgressLine line(file, {.is_terminal = false}, "loading", ProgressUnit::bytes, 100);
        line.update(50);
    }
    EXPECT_EQ(std::ftell(file), 0);
    {
        ProgressLine line(file, {.is_terminal = true}, "loading", ProgressUnit::bytes, 100);
        line.update(50);
    }
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    ASSERT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
    EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
    std::fclose(file);
}

}  // namespace
}  // namespace plimsoll
