#include "tools/run_turn.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tools/progress.hpp"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

TurnRunner::TurnRunner(TokenModel model, Sampler sampler, StopLimits limits,
                       const InterruptFlag& interrupt, std::FILE* progress_stream,
                       const Terminal& progress_terminal)
    : model_(std::move(model)),
      sampler_(std::move(sampler)),
      limits_(limits),
      interrupt_(&interrupt),
      progress_stream_(progress_stream),
      progress_terminal_(progress_terminal) {
    fed_.reserve(limits.context_tokens);
}

Result<Turn> TurnRunner::run(std::span<const TokenId> tokens, TextOutput& output) {
    Turn turn;
    const bool continues =
        fed_.size() < tokens.size() && std::equal(fed_.begin(), fed_.end(), tokens.begin());
    if (!continues) {
        if (Status ready = model_.reset(); !ready) return ready.error();
        fed_.clear();
    }
    const Clock::time_point start = Clock::now();
    if (const Status done = prefill(tokens.subspan(fed_.size()), turn.tally); !done) {
        return done.error();
    }
    turn.tally.prefill_seconds = seconds_since(start);
    if (turn.tally.interrupted) return turn;
    const Clock::time_point first_token = Clock::now();
    if (const Status done = generate(output, turn); !done) return done.error();
    turn.tally.decode_seconds = seconds_since(first_token);
    if (const Status done = output.finish(); !done) return done.error();
    return turn;
}

Status TurnRunner::prefill(std::span<const TokenId> tokens, TurnTally& tally) {
    ProgressLine progress(progress_stream_, progress_terminal_, "prefill", ProgressUnit::tokens,
                          tokens.size());
    while (tally.fed_tokens < tokens.size()) {
        if (interrupt_->raised()) {
            tally.interrupted = true;
            return ok_status();
        }
        const std::uint64_t count =
            std::min<std::uint64_t>(model_.chunk_tokens, tokens.size() - tally.fed_tokens);
        if (Status done = feed(tokens.subspan(tally.fed_tokens, count)); !done) return done;
        tally.fed_tokens += count;
        progress.update(tally.fed_tokens);
    }
    return ok_status();
}

Status TurnRunner::generate(TextOutput& output, Turn& turn) {
    TurnTally& tally = turn.tally;
    for (;;) {
        const Result<TokenId> token = next_token();
        if (!token) return token.error();
        turn.generated.push_back(*token);
        ++tally.generated_tokens;
        const Result<bool> stopped = output.push(*token);
        if (!stopped) return stopped.error();
        tally.stop = *stopped
                         ? StopReason::stop_string
                         : stop_after(limits_, *token, tally.generated_tokens, fed_.size() + 1);
        if (tally.stop) return ok_status();
        if (interrupt_->raised()) {
            tally.interrupted = true;
            return ok_status();
        }
        if (Status done = feed({&*token, 1}); !done) return done;
        ++tally.decoded_tokens;
    }
}

Result<TokenId> TurnRunner::next_token() {
    if (model_chooses()) return chosen_;
    return sampler_.sample(logits_);
}

Status TurnRunner::feed(std::span<const TokenId> tokens) {
    if (model_chooses()) {
        const Result<TokenId> chosen = model_.feed_greedy(tokens);
        if (!chosen) return chosen.error();
        chosen_ = *chosen;
    } else {
        const Result<std::span<const float>> logits = model_.feed(tokens);
        if (!logits) return logits.error();
        logits_ = *logits;
    }
    fed_.insert(fed_.end(), tokens.begin(), tokens.end());
    return ok_status();
}

}  // namespace plimsoll
