#include "runtime/token_file.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace plimsoll {
namespace {

using Ids = std::vector<TokenId>;

TEST(TokenFile, ReadsIdsSeparatedByAnyWhiteSpace) {
    EXPECT_EQ(parse_tokens(" 1 2\n\t383\r\n", "ids", 384).value(), (Ids{1, 2, 383}));
}

TEST(TokenFile, ReadsTheTokensOfACase) {
    EXPECT_EQ(parse_tokens(R"({"name": "x", "tokens": [5, 0, 7], "seed": 1})", "case", 8).value(),
              (Ids{5, 0, 7}));
}

TEST(TokenFile, NamesTheSourceAndThePositionOfWhatIsWrong) {
    const std::map<std::string, std::string> cases = {
        {"1 2 384", "ids: token 2 is '384', the vocabulary has ids 0 to 383"},
        {"1 -1", "ids: token 1 is '-1', the vocabulary has ids 0 to 383"},
        {"99999999999999999999",
         "ids: token 0 is '99999999999999999999', the vocabulary has ids 0 to 383"},
        {"1,2", "ids: token 0 is '1,2', not a whole number"},
        {"1.5", "ids: token 0 is '1.5', not a whole number"},
        {"", "ids: no token ids"},
        {R"({"tokens": [1, "a"]})", "ids: token 1 is '\"a\"', not a whole number"},
        {R"({"tokens": [1, 400]})", "ids: token 1 is '400', the vocabulary has ids 0 to 383"},
        {R"({"tokens": 1})", "ids: no array \"tokens\""},
        {R"({"tokens": [1)", "ids: begins like JSON but is none"},
    };
    for (const auto& [text, message] : cases) {
        const auto ids = parse_tokens(text, "ids", 384);
        ASSERT_FALSE(ids.ok()) << text;
        EXPECT_EQ(ids.error().message, message);
    }
}

TEST(TokenFile, SaysWhichFileIsMissing) {
    const auto ids = read_token_file("/nonexistent/ids", 384);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().message, "/nonexistent/ids: cannot be opened");
}

}  // namespace
}  // namespace plimsoll
