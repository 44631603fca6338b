#include "tools/run_turn.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/small_tokenizer.hpp"
#include "tools/run_chat.hpp"

namespace plimsoll {
namespace {

using Stream = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string text_of_stream(std::FILE* stream) {
    std::rewind(stream);
    std::string text;
    for (int c = 0; (c = std::fgetc(stream)) != EOF;) text.push_back(static_cast<char>(c));
    return text;
}

/// A model that replies with given tokens, one after the other, whatever it is fed.
class RunTurn : public testing::Test {
protected:
    TokenModel model() {
        return {.chunk_tokens = 4,
                .reset =
                    [this] {
                        ++resets_;
                        fed_.clear();
                        return ok_status();
                    },
                .feed = [this](std::span<const TokenId> tokens) { return feed(tokens); },
                .feed_greedy = {}};
    }
    Result<std::span<const float>> feed(std::span<const TokenId> tokens) {
        if (fed_.size() >= fail_after_tokens_) return Error{ErrorKind::io, "scripted"};
        EXPECT_LE(tokens.size(), 4u);
        calls_.push_back(tokens.size());
        fed_.insert(fed_.end(), tokens.begin(), tokens.end());
        if (fed_.size() >= interrupt_at_tokens_) {
            interrupt_at_tokens_ = ~std::size_t{0};
            std::raise(SIGINT);
        }
        logits_.assign(tokenizer_.vocab_size(), 0.0f);
        const TokenId next = fed_.size() < prompt_.size() || script_at_ >= script_.size()
                                 ? tokenizer_.special().eos
                                 : script_[script_at_++];
        logits_[static_cast<std::size_t>(next)] = 1;
        return std::span<const float>(logits_);
    }
    TurnRunner runner(std::uint64_t max_tokens = 0) {
        return {model(),
                Sampler::create({.temperature = 0}, tokenizer_.vocab_size()).value(),
                {.eos = tokenizer_.special().eos, .max_tokens = max_tokens, .context_tokens = 64},
                interrupt_,
                stderr,
                {}};
    }
    Turn run(TurnRunner& turns, std::vector<std::string> stops = {}) {
        TextOutput output(out_.get(), tokenizer_, StopStrings::create(std::move(stops)).value());
        Turn turn = turns.run(prompt_, output).value();
        text_ = output.text();
        return turn;
    }

    Tokenizer tokenizer_ = test::small_tokenizer();
    InterruptFlag interrupt_;
    Stream out_{std::tmpfile(), &std::fclose};
    std::vector<TokenId> prompt_ = tokenizer_.encode_text("abcdefghij klm");
    std::vector<TokenId> script_ = tokenizer_.encode_text("some reply text");
    std::vector<TokenId> fed_;
    std::vector<std::size_t> calls_;
    std::vector<float> logits_;
    std::size_t script_at_ = 0;
    std::size_t interrupt_at_tokens_ = ~std::size_t{0};
    std::size_t fail_after_tokens_ = ~std::size_t{0};
    std::string text_;
    int resets_ = 0;
};

TEST_F(RunTurn, FeedsChunksAndRepliesUntilEos) {
    TurnRunner turns = runner();
    const Turn turn = run(turns);
    EXPECT_EQ(text_, "some reply text");
    EXPECT_EQ(turn.tally.stop, StopReason::eos);
    EXPECT_EQ(turn.generated.back(), tokenizer_.special().eos);
    EXPECT_EQ(turn.tally.fed_tokens, prompt_.size());
    EXPECT_EQ(turn.tally.generated_tokens, script_.size() + 1);
    EXPECT_EQ(turn.tally.decoded_tokens, script_.size());
    EXPECT_EQ(calls_.front(), 4u);
}

TEST_F(RunTurn, StopsAtTheTokenLimitWithoutFeedingTheLast) {
    TurnRunner turns = runner(2);
    const Turn turn = run(turns);
    EXPECT_EQ(turn.tally.stop, StopReason::max_tokens);
    EXPECT_EQ(turn.generated.size(), 2u);
    EXPECT_EQ(fed_.size(), prompt_.size() + 1);
}

TEST_F(RunTurn, StopsBeforeAStopString) {
    TurnRunner turns = runner();
    EXPECT_EQ(run(turns, {"reply"}).tally.stop, StopReason::stop_string);
    EXPECT_EQ(text_, "some ");
}

TEST_F(RunTurn, StopsWhereTheContextIsFull) {
    script_.assign(200, script_.front());
    TurnRunner turns = runner();
    const Turn turn = run(turns);
    EXPECT_EQ(turn.tally.stop, StopReason::context_full);
    EXPECT_EQ(prompt_.size() + turn.generated.size(), 64u);
    EXPECT_LT(fed_.size(), 64u);
}

TEST_F(RunTurn, FeedsOnlyWhatIsNewOfAPromptThatContinues) {
    TurnRunner turns = runner();
    const Turn first = run(turns);
    EXPECT_EQ(resets_, 0);
    const std::size_t seen = fed_.size();
    prompt_.insert(prompt_.end(), first.generated.begin(), first.generated.end());
    const std::vector<TokenId> more = tokenizer_.encode_text("more");
    prompt_.insert(prompt_.end(), more.begin(), more.end());
    EXPECT_EQ(run(turns).tally.fed_tokens, prompt_.size() - seen);
    EXPECT_EQ(resets_, 0);
    prompt_.front() = more.back();
    EXPECT_EQ(run(turns).tally.fed_tokens, prompt_.size());
    EXPECT_EQ(resets_, 1);
}

TEST_F(RunTurn, EndsAtCtrlCBetweenTokensAndBetweenChunks) {
    interrupt_at_tokens_ = prompt_.size() + 2;
    TurnRunner turns = runner();
    const Turn turn = run(turns);
    EXPECT_TRUE(turn.tally.interrupted);
    EXPECT_EQ(turn.generated.size(), 3u);
    interrupt_.clear();

    interrupt_at_tokens_ = 4;
    TurnRunner again = runner();
    fed_.clear();
    const Turn cut = run(again);
    EXPECT_TRUE(cut.tally.interrupted);
    EXPECT_EQ(cut.tally.fed_tokens, 4u);
    EXPECT_TRUE(cut.generated.empty());
}

TEST_F(RunTurn, HandsOnWhatTheModelReports) {
    fail_after_tokens_ = 4;
    TurnRunner turns = runner();
    TextOutput output(out_.get(), tokenizer_, StopStrings::create({}).value());
    const Result<Turn> failed = turns.run(prompt_, output);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::io);
}

TEST_F(RunTurn, ChatKeepsTheHistoryAndTheRepliesApartFromMessages) {
    const Stream typed(std::tmpfile(), &std::fclose), messages(std::tmpfile(), &std::fclose);
    std::fputs("Hi\n\nAgain\n/new\nHi\n", typed.get());
    std::rewind(typed.get());
    prompt_.clear();
    script_ = tokenizer_.encode_text("ok");
    script_.push_back(tokenizer_.special().eos);
    const std::vector<TokenId> once = script_;
    LineReader reader(typed.get(), messages.get(), interrupt_);
    Conversation conversation(tokenizer_, ThinkMode::off, {});
    TurnRunner turns = runner(3);
    const ChatSetup setup{.replies = out_.get(),
                          .messages = messages.get(),
                          .tokenizer = &tokenizer_,
                          .context_tokens = 64};
    ASSERT_TRUE(run_chat(setup, reader, interrupt_, conversation, turns));
    EXPECT_EQ(resets_, 1);  // by /new alone: the second question continued the first
    const std::string said = text_of_stream(messages.get());
    EXPECT_NE(said.find("[prompt "), std::string::npos) << said;
    EXPECT_EQ(text_of_stream(out_.get()).find('['), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
