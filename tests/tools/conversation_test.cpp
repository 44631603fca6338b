#include "tools/conversation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

class ConversationTest : public testing::Test {
protected:
    std::vector<TokenId> ask(Conversation& conversation, const char* question) {
        return conversation.ask(question).value();
    }
    void answer(Conversation& conversation, const std::string& text, bool ended = true) {
        std::vector<TokenId> tokens = tokenizer_.encode_markup(text);
        if (ended) tokens.push_back(tokenizer_.special().eos);
        conversation.answer(tokens, text, true);
    }
    std::string text(const std::vector<TokenId>& tokens) const { return tokenizer_.decode(tokens); }

    Tokenizer tokenizer_ = test::small_tokenizer();
    const std::string bos_{kBosText}, eos_{kEosText}, user_{kUserText}, reply_{kAssistantText};
};

TEST_F(ConversationTest, ContinuesExactlyWhatTheModelHasSeen) {
    Conversation conversation(tokenizer_, ThinkMode::off, {});
    std::vector<TokenId> seen = ask(conversation, "One?");
    // A sampled reply need not be split as the tokenizer would split its text.
    std::vector<TokenId> sampled;
    for (const char letter : std::string("the the")) {
        sampled.push_back(tokenizer_.encode_text(std::string(1, letter)).front());
    }
    ASSERT_NE(sampled, tokenizer_.encode_text("the the"));
    conversation.answer(sampled, "the the", true);
    seen.insert(seen.end(), sampled.begin(), sampled.end());
    const std::vector<TokenId> next = ask(conversation, "Two?");
    ASSERT_GT(next.size(), seen.size());
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), next.begin()));
    EXPECT_EQ(text(next), bos_ + user_ + "One?" + reply_ + "</think>the the" + eos_ + user_ +
                              "Two?" + reply_ + "</think>");
}

TEST_F(ConversationTest, PutsEosOnceWhetherOrNotItWasSampled) {
    for (const bool ended : {true, false}) {
        Conversation conversation(tokenizer_, ThinkMode::off, {});
        static_cast<void>(ask(conversation, "One?"));
        answer(conversation, "Yes", ended);
        const std::vector<TokenId> next = ask(conversation, "Two?");
        EXPECT_EQ(std::count(next.begin(), next.end(), tokenizer_.special().eos), 1);
    }
}

TEST_F(ConversationTest, DropsReasoningOfEarlierTurns) {
    Conversation conversation(tokenizer_, ThinkMode::high, {});
    static_cast<void>(ask(conversation, "One?"));
    answer(conversation, "because</think>Yes");
    EXPECT_EQ(text(ask(conversation, "Two?")), bos_ + user_ + "One?" + reply_ + "</think>Yes" +
                                                   eos_ + user_ + "Two?" + reply_ + "<think>");
}

TEST_F(ConversationTest, EncodesAnewWhereTextWasCutBeforeAStopString) {
    Conversation conversation(tokenizer_, ThinkMode::off, {});
    static_cast<void>(ask(conversation, "One?"));
    conversation.answer(tokenizer_.encode_text("Yes STOP"), "Yes ", false);
    EXPECT_EQ(text(ask(conversation, "Two?")), bos_ + user_ + "One?" + reply_ + "</think>Yes " +
                                                   eos_ + user_ + "Two?" + reply_ + "</think>");
}

TEST_F(ConversationTest, ForgetsAllButTheSystemText) {
    Conversation conversation(tokenizer_, ThinkMode::off,
                              {{.role = Role::system, .content = "Be brief."}});
    const std::vector<TokenId> first = ask(conversation, "One?");
    answer(conversation, "Yes");
    static_cast<void>(ask(conversation, "Two?"));
    conversation.forget();
    EXPECT_EQ(ask(conversation, "One?"), first);
}

TEST_F(ConversationTest, TakesAQuestionBack) {
    Conversation conversation(tokenizer_, ThinkMode::off, {});
    static_cast<void>(ask(conversation, "One?"));
    conversation.take_back();
    EXPECT_EQ(text(ask(conversation, "Two?")), bos_ + user_ + "Two?" + reply_ + "</think>");
}

}  // namespace
}  // namespace plimsoll
