#include "planner/units.hpp"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ParseSize, ReadsBinaryAndDecimalUnitsInAnyCase) {
    EXPECT_EQ(*parse_size("4096"), 4096u);
    EXPECT_EQ(*parse_size("96GiB"), 96 * kGiB);
    EXPECT_EQ(*parse_size("24 gb"), 24'000'000'000u);
    EXPECT_EQ(*parse_size("1.5GiB"), 3 * kGiB / 2);
    EXPECT_EQ(*parse_size("0"), 0u);
    EXPECT_EQ(*parse_size("450MiB"), 450 * kMiB);
}

TEST(ParseSize, RefusesWhatIsNoSizeAndQuotesIt) {
    for (const char* text :
         {"", "-1", "GiB", "12 apples", "1e3GiB", "9223372036854775808", "99999999TiB", "1..5GiB",
          "0x10", "1,024", "nan", "inf GiB", "12GiBs"}) {
        const Result<std::uint64_t> size = parse_size(text);
        ASSERT_FALSE(size) << text;
        EXPECT_NE(size.error().message.find(text), std::string::npos) << size.error().message;
    }
}

TEST(FormatSize, RoundsForPeopleOnly) {
    EXPECT_EQ(format_mib(1522 * kMiB), "1,522 MiB");
    EXPECT_EQ(format_count(1'048'576), "1,048,576");
    EXPECT_EQ(format_bytes(583), "583 B");
    EXPECT_EQ(format_bytes(86'714'775'900), "80.76 GiB");
}

TEST(CheckedArithmetic, SaysSoInsteadOfWrapping) {
    EXPECT_EQ(checked_mul(1ull << 32, 1ull << 32), std::nullopt);
    EXPECT_EQ(checked_add(~0ull, 1), std::nullopt);
    EXPECT_EQ(checked_mul(1ull << 31, 1ull << 32), 1ull << 63);
    EXPECT_EQ(saturating_sub(3, 5), 0u);
    EXPECT_EQ(ceil_div(~0ull, 2), 1ull << 63);
}

}  // namespace
}  // namespace plimsoll
