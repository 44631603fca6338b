#include "runtime/tokenizer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

using Ids = std::vector<TokenId>;

TEST(Tokenizer, EncodesEveryTextCaseAsTheReferenceDoes) {
    const auto json = test::read_test_json("tokenizer/small_bpe.json");
    const Tokenizer tokenizer = test::small_tokenizer();
    ASSERT_GT(json.at("text_cases").size(), 300u);
    for (const auto& entry : json.at("text_cases")) {
        const std::string text = entry.at("text");
        EXPECT_EQ(tokenizer.encode_text(text), entry.at("ids").get<Ids>()) << entry.at("text");
    }
}

TEST(Tokenizer, EncodesEveryMarkupCaseAsTheReferenceDoes) {
    const auto json = test::read_test_json("tokenizer/small_bpe.json");
    const Tokenizer tokenizer = test::small_tokenizer();
    for (const auto& entry : json.at("markup_cases")) {
        const std::string text = entry.at("text");
        EXPECT_EQ(tokenizer.encode_markup(text), entry.at("ids").get<Ids>()) << entry.at("text");
    }
}

TEST(Tokenizer, GivesBackAnyBytes) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const std::uint32_t seed = 11;
    std::mt19937 random(seed);
    for (int round = 0; round < 500; ++round) {
        std::string bytes(random() % 64, '\0');
        for (char& byte : bytes) byte = static_cast<char>(random() % 256);
        EXPECT_EQ(tokenizer.decode(tokenizer.encode_text(bytes)), bytes)
            << "seed " << seed << " round " << round;
    }
}

TEST(Tokenizer, MergesTheLeftmostOfEqualPairs) {
    TokenizerTables tables = test::small_tables();
    tables.merges = {"q q"};
    tables.tokens.push_back("qq");
    tables.token_types.push_back(1);
    const Tokenizer tokenizer = Tokenizer::create(tables).value();
    const TokenId qq = *tokenizer.find("qq");
    const TokenId q = *tokenizer.find("q");
    EXPECT_EQ(tokenizer.encode_text("qqqqq"), (Ids{qq, qq, q}));
}

TEST(Tokenizer, MergesAMebibyteOfOneLetterInSeconds) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const std::string text(1u << 20, 'e');
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer.encode_text(text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Tokenizer, NeverMakesAControlTokenOutOfText) {
    const Tokenizer tokenizer = test::small_tokenizer();
    for (const auto& text : {kBosText, kEosText, kUserText, kAssistantText, kThinkBeginText,
                             kThinkEndText, kDsmlText}) {
        const Ids ids = tokenizer.encode_text(text);
        EXPECT_GT(ids.size(), 1u);
        for (const TokenId id : ids) EXPECT_FALSE(tokenizer.is_special(id)) << text;
        EXPECT_EQ(tokenizer.decode(ids), text);
    }
}

TEST(Tokenizer, SeesNoSpecialStringAcrossTheEdgeOfAPart) {
    const Tokenizer tokenizer = test::small_tokenizer();
    using Kind = PromptPart::Kind;
    const PromptPart parts[] = {{Kind::text, "<thi"}, {Kind::markup, "nk>"}, {Kind::text, "x"}};
    for (const TokenId id : tokenizer.encode(parts)) EXPECT_FALSE(tokenizer.is_special(id));
}

TEST(Tokenizer, EncodesTextAcrossPartsAsOne) {
    const Tokenizer tokenizer = test::small_tokenizer();
    using Kind = PromptPart::Kind;
    const PromptPart parts[] = {{Kind::markup, std::string(kUserText)},
                                {Kind::text, "the sh"},
                                {Kind::markup, "ip"},
                                {Kind::markup, std::string(kEosText)}};
    EXPECT_EQ(tokenizer.encode(parts),
              tokenizer.encode_markup(std::string(kUserText) + "the ship" + std::string(kEosText)));
}

TEST(Tokenizer, TakesTheLongestSpecialStringAtAPosition) {
    TokenizerTables tables = test::small_tables();
    tables.tokens.push_back("<think>ing");
    tables.token_types.push_back(4);
    const Tokenizer tokenizer = Tokenizer::create(tables).value();
    EXPECT_EQ(tokenizer.encode_markup("<think>ing"), Ids{*tokenizer.find("<think>ing")});
    EXPECT_EQ(tokenizer.encode_markup("<think>in").front(), tokenizer.special().think_begin);
}

TEST(Tokenizer, NeedsNoTokenTypes) {
    TokenizerTables tables = test::small_tables();
    tables.token_types.clear();
    const Tokenizer tokenizer = Tokenizer::create(tables).value();
    EXPECT_TRUE(tokenizer.is_special(tokenizer.special().think_end));
    EXPECT_EQ(tokenizer.bytes(tokenizer.special().bos), kBosText);
}

struct BadTable {
    const char* what;
    void (*spoil)(TokenizerTables&);
    const char* message;
};

const BadTable kBadTables[] = {
    {"no tokens", [](TokenizerTables& t) { t = {}; }, "0 tokens"},
    {"fewer types", [](TokenizerTables& t) { t.token_types.pop_back(); }, "token types for"},
    {"a token twice", [](TokenizerTables& t) { t.tokens[300] = t.tokens[299]; },
     "tokens 299 and 300 are both"},
    {"an empty token", [](TokenizerTables& t) { t.tokens[12].clear(); }, "token 12 is empty"},
    {"a huge token", [](TokenizerTables& t) { t.tokens[12].assign(1u << 20, 'q'); },
     "token 12 has 1048576 bytes"},
    {"no byte 0x21", [](TokenizerTables& t) { t.tokens[0] = "nothing"; }, "0x21"},
    {"no <think>", [](TokenizerTables& t) { t.tokens[t.tokens.size() - 4] = "<thunk>"; },
     "lacks <think>"},
    {"merge without a space", [](TokenizerTables& t) { t.merges[3] = "th"; }, "merge 3 is 'th'"},
    {"merge of three", [](TokenizerTables& t) { t.merges[3] = "a b c"; }, "merge 3 is 'a b c'"},
    {"merge of nothing", [](TokenizerTables& t) { t.merges[3] = "a "; }, "merge 3 is 'a '"},
    {"merge of an unknown token", [](TokenizerTables& t) { t.merges[3] = "zqzq a"; },
     "names 'zqzq', which is no token"},
    {"merge into an unknown token", [](TokenizerTables& t) { t.merges[3] = "z q"; },
     "names 'zq', which is no token"},
    {"merge into a special token",
     [](TokenizerTables& t) {
         t.tokens.push_back("<think");
         t.token_types.push_back(1);
         t.merges[3] = "<think >";
     },
     "names '<think>', which is a special token"},
    {"merge twice", [](TokenizerTables& t) { t.merges[5] = t.merges[2]; },
     "merges 2 and 5 are both"},
    {"invalid UTF-8 in a merge", [](TokenizerTables& t) { t.merges[5] = "\xFF a"; }, "merge 5"},
};

TEST(Tokenizer, RefusesTablesThatContradictThemselvesNamingTheEntry) {
    for (const BadTable& bad : kBadTables) {
        TokenizerTables tables = test::small_tables();
        bad.spoil(tables);
        const auto tokenizer = Tokenizer::create(std::move(tables));
        ASSERT_FALSE(tokenizer.ok()) << bad.what;
        EXPECT_EQ(tokenizer.error().kind, ErrorKind::bad_file);
        EXPECT_NE(tokenizer.error().message.find(bad.message), std::string::npos)
            << bad.what << ": " << tokenizer.error().message;
        EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
    }
}

TEST(Tokenizer, ListsEverySpecialTokenThatIsMissing) {
    TokenizerTables tables = test::small_tables();
    tables.tokens.resize(tables.tokens.size() - 9);
    tables.token_types.resize(tables.tokens.size());
    const auto tokenizer = Tokenizer::create(std::move(tables));
    ASSERT_FALSE(tokenizer.ok());
    for (const auto& text : {kBosText, kEosText, kUserText, kAssistantText, kThinkBeginText,
                             kThinkEndText, kDsmlText}) {
        EXPECT_NE(tokenizer.error().message.find(text), std::string::npos) << text;
    }
}

TEST(Tokenizer, NotesSpecialTokensOfThePublishedSizeAtOtherIds) {
    TokenizerTables tables = test::small_tables();
    tables.token_types.clear();
    while (tables.tokens.size() < 129280) {
        tables.tokens.push_back("<\uFF5Cfill " + std::to_string(tables.tokens.size()) + "\uFF5C>");
    }
    const Tokenizer tokenizer = Tokenizer::create(std::move(tables)).value();
    EXPECT_EQ(tokenizer.notes().size(), 7u);
    EXPECT_TRUE(test::small_tokenizer().notes().empty());
}

}  // namespace
}  // namespace plimsoll
