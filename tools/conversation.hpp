#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/result.hpp"
#include "runtime/chat.hpp"
#include "runtime/tokenizer.hpp"

namespace plimsoll {

/// The tokens of a conversation, turn after turn. What was sampled is kept token by token, not
/// encoded again from its text, so that the tokens of the next turn begin with all that the model
/// has seen; only where reasoning is dropped, or text was cut before a stop string, does the
/// history change.
class Conversation {
public:
    /// `tokenizer` outlives it. `opening` holds the messages before the first question.
    Conversation(const Tokenizer& tokenizer, ThinkMode think, std::vector<Message> opening);

    /// The tokens with a new question, ending where the model is to reply.
    [[nodiscard]] Result<std::vector<TokenId>> ask(std::string question);

    /// The reply to the last question: the sampled tokens, with EOS where it was sampled, and the
    /// text that was shown. `text_is_whole`: nothing was cut off for a stop string.
    void answer(std::span<const TokenId> tokens, const std::string& text, bool text_is_whole);

    /// The last question is not asked after all.
    void take_back();

    /// Everything after the opening is forgotten.
    void forget();

private:
    const Tokenizer* tokenizer_;
    ThinkMode think_;
    std::size_t opening_count_;
    std::vector<Message> messages_;
    std::vector<TokenId> asked_;    // what `ask` gave last
    std::vector<TokenId> history_;  // up to and with the last reply's EOS; empty: encode anew
};

}  // namespace plimsoll
