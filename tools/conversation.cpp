#include "tools/conversation.hpp"

#include <utility>

#include "runtime/reply.hpp"
#include "tools/run_prompt.hpp"

namespace plimsoll {

Conversation::Conversation(const Tokenizer& tokenizer, ThinkMode think,
                           std::vector<Message> opening)
    : tokenizer_(&tokenizer),
      think_(think),
      opening_count_(opening.size()),
      messages_(std::move(opening)) {}

Result<std::vector<TokenId>> Conversation::ask(std::string question) {
    messages_.push_back({.role = Role::user, .content = std::move(question)});
    if (history_.empty()) {
        Result<std::vector<TokenId>> tokens = encode_chat(messages_, think_, *tokenizer_);
        if (tokens) asked_ = *tokens;
        return tokens;
    }
    // Special tokens separate turns, so that a turn encodes alike alone and after others.
    const Result<std::vector<TokenId>> turn =
        encode_chat(std::span(messages_).last(1), think_, *tokenizer_);
    if (!turn) return turn.error();
    asked_ = history_;
    asked_.insert(asked_.end(), turn->begin() + 1, turn->end());  // without BOS
    return asked_;
}

void Conversation::answer(std::span<const TokenId> tokens, const std::string& text,
                          bool text_is_whole) {
    const Reply reply = parse_reply(text, think_);
    messages_.push_back({.role = Role::assistant,
                         .content = reply.content,
                         .reasoning = reply.reasoning,
                         .tool_calls = reply.tool_calls});
    history_.clear();
    if (think_ != ThinkMode::off || !text_is_whole) return;
    history_ = asked_;
    history_.insert(history_.end(), tokens.begin(), tokens.end());
    if (history_.back() != tokenizer_->special().eos) {
        history_.push_back(tokenizer_->special().eos);
    }
}

void Conversation::take_back() { messages_.pop_back(); }

void Conversation::forget() {
    messages_.resize(opening_count_);
    history_.clear();
}

}  // namespace plimsoll
