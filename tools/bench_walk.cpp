#include "tools/bench_walk.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "planner/check.hpp"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPromptSeed = 1;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ContextWalk::ContextWalk(TokenModel model, std::uint32_t vocab_size, const InterruptFlag& interrupt)
    : model_(std::move(model)),
      vocab_size_(vocab_size),
      interrupt_(interrupt),
      random_(kPromptSeed) {}

std::vector<TokenId> ContextWalk::random_tokens(std::uint64_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_.next() % vocab_size_);
    return tokens;
}

Status ContextWalk::feed_chunk(std::span<const TokenId> tokens) {
    if (interrupt_.raised()) return Error{ErrorKind::interrupted, "interrupted"};
    const Result<TokenId> next = model_.feed_greedy(tokens);
    if (!next) return next.error();
    next_ = *next;
    position_ += tokens.size();
    return ok_status();
}

Status ContextWalk::feed(std::uint64_t count) {
    while (count > 0) {
        const std::uint64_t taken = std::min(model_.chunk_tokens, count);
        if (Status fed = feed_chunk(random_tokens(taken)); !fed) return fed;
        count -= taken;
    }
    return ok_status();
}

Status ContextWalk::generate(std::uint64_t count) {
    for (; count > 0; --count) {
        const TokenId token = next_;
        if (Status fed = feed_chunk({&token, 1}); !fed) return fed;
    }
    return ok_status();
}

Status ContextWalk::warm_up(std::uint64_t prompt_tokens, std::uint64_t gen_tokens) {
    if (Status fed = feed(std::min(prompt_tokens, model_.chunk_tokens)); !fed) return fed;
    if (Status generated = generate(gen_tokens); !generated) return generated;
    position_ = 0;
    return model_.reset();
}

Result<BenchRow> ContextWalk::measure(std::uint64_t context_tokens, std::uint64_t gen_tokens) {
    PLIMSOLL_CHECK(position_ < context_tokens, "a context that was walked past");
    BenchRow row{.ctx_tokens = context_tokens,
                 .prefill_tokens = context_tokens - position_,
                 .gen_tokens = gen_tokens};
    Clock::time_point start = Clock::now();
    if (Status fed = feed(row.prefill_tokens); !fed) return fed.error();
    row.prefill_seconds = seconds_since(start);
    start = Clock::now();
    if (Status generated = generate(gen_tokens); !generated) return generated.error();
    row.gen_seconds = seconds_since(start);
    return row;
}

}  // namespace plimsoll
