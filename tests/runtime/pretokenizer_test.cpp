#include "runtime/pretokenizer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

std::vector<std::string> pieces_of(const std::string& text) {
    static const Pretokenizer pretokenizer = Pretokenizer::create().value();
    std::vector<std::string> pieces;
    for (const std::string_view piece : pretokenizer.split(text)) pieces.emplace_back(piece);
    return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Pretokenizer, CutsEveryCaseAsTheReferenceDoes) {
    const auto json = test::read_test_json("tokenizer/pieces.json");
    ASSERT_GT(json.at("cases").size(), 300u);
    for (const auto& entry : json.at("cases")) {
        EXPECT_EQ(pieces_of(entry.at("text")), entry.at("pieces").get<Pieces>())
            << entry.at("text");
    }
}

TEST(Pretokenizer, GivesInvalidBytesPiecesOfTheirOwn) {
    EXPECT_EQ(pieces_of("ab\xFF\xC3 cd"), (Pieces{"ab", "\xFF\xC3", " cd"}));
    EXPECT_EQ(pieces_of("\x80\x80"), (Pieces{"\x80\x80"}));
    EXPECT_EQ(pieces_of("x\xE6\xBC"), (Pieces{"x", "\xE6\xBC"}));    // cut short at the end
    EXPECT_EQ(pieces_of("\xED\xA0\x80"), (Pieces{"\xED\xA0\x80"}));  // a surrogate
    EXPECT_EQ(pieces_of("1\xC0\xAF"
                        "2"),
              (Pieces{"1", "\xC0\xAF", "2"}));  // an overlong slash
}

TEST(Pretokenizer, TreatsTheEndOfValidTextAsTheEnd) {
    EXPECT_EQ(pieces_of("a  \xFF"), (Pieces{"a", "  ", "\xFF"}));
}

TEST(Pretokenizer, TakesLinearTimeOverLongRuns) {
    const auto start = std::chrono::steady_clock::now();
    for (const char* unit : {" ", "a", "1", "\n", " \n", "!", "\x01", "\xFF", "a\xFF", "\u3042"}) {
        std::string text;
        while (text.size() < 1u << 20) text += unit;
        std::size_t size_bytes = 0;
        for (const auto& piece : pieces_of(text)) size_bytes += piece.size();
        EXPECT_EQ(size_bytes, text.size()) << unit;
    }
    // Quadratic time would be minutes; the bound is loose for sanitizer builds.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace plimsoll
