#include "runtime/utf8.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plimsoll {
namespace {

std::string streamed(const std::vector<std::string>& chunks) {
    Utf8Stream stream;
    std::string out;
    for (const std::string& chunk : chunks) stream.push(chunk, out);
    stream.finish(out);
    return out;
}

TEST(Utf8, ReadsBackEveryCodePointItWrites) {
    for (char32_t c = 0; c < 0x110000; ++c) {
        if (c == 0xD800) c = 0xE000;  // surrogates are no scalar values
        std::string text;
        append_utf8(c, text);
        const Utf8Char read = decode_utf8(text);
        ASSERT_EQ(read.code_point, c);
        ASSERT_EQ(read.size_bytes, text.size());
    }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndTooLargeValues) {
    for (const char* text :
         {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
        EXPECT_EQ(decode_utf8(text).size_bytes, 0);
        EXPECT_EQ(decode_utf8(text).invalid_bytes, 1) << text;
    }
}

TEST(Utf8Stream, HoldsBackACutSequenceUntilTheRestComes) {
    Utf8Stream stream;
    std::string out;
    stream.push("a\xF0\x9F", out);
    EXPECT_EQ(out, "a");
    stream.push("\x99", out);
    EXPECT_EQ(out, "a");
    stream.push(
        "\x82"
        "b",
        out);
    EXPECT_EQ(out,
              "a\U0001F642"
              "b");
}

TEST(Utf8Stream, GivesTheSameTextHoweverTheBytesAreCut) {
    const std::string bytes =
        "x\u00E8\u6F22\U0001F642\xFF\xE6\xBC"
        "y\xF0\x9F\x99\xC3\xA8\xC3";
    const std::string whole = streamed({bytes});
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
        EXPECT_EQ(streamed({bytes.substr(0, cut), bytes.substr(cut)}), whole) << cut;
    }
}

TEST(Utf8Stream, ReplacesWhatCanNeverBeText) {
    EXPECT_EQ(streamed({"a\xFF"
                        "b"}),
              "a\uFFFD"
              "b");
    EXPECT_EQ(streamed({"a\xE6\xBC"}), "a\uFFFD");  // still held at the end
    EXPECT_EQ(streamed({"\xE6\xBC"
                        "b"}),
              "\uFFFD"
              "b");  // one for the part that was cut
    EXPECT_EQ(streamed({"\xED\xA0\x80"}), "\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace plimsoll
