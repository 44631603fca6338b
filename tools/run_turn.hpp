#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <vector>

#include "planner/result.hpp"
#include "runtime/sampler.hpp"
#include "runtime/stop.hpp"
#include "runtime/token_id.hpp"
#include "tools/interrupt.hpp"
#include "tools/run_summary.hpp"
#include "tools/run_text.hpp"
#include "tools/terminal.hpp"

namespace plimsoll {

/// A loaded model as a turn sees it: tokens go in, logits come out. Tests give a scripted one.
struct TokenModel {
    std::uint64_t chunk_tokens = 0;  // the most that `feed` takes at once
    std::function<Status()> reset;   // forgets all that was fed

    /// Feeds tokens behind those fed before. The logits [vocab] f32 of the last one, valid until
    /// the next call.
    std::function<Result<std::span<const float>>(std::span<const TokenId>)> feed;
    /// The same, and the most likely next token: what a greedy sampler would take of the logits.
    /// May be empty: then the logits are asked for.
    std::function<Result<TokenId>(std::span<const TokenId>)> feed_greedy;
};

/// A turn as it went.
struct Turn {
    TurnTally tally;
    std::vector<TokenId> generated;  // with EOS where it was sampled
};

/// Feeds prompts and generates replies, one turn after the other. Knows what the model has seen, so
/// that a prompt which continues it is fed from there on.
class TurnRunner {
public:
    /// `interrupt` and `progress_stream` outlive it.
    TurnRunner(TokenModel model, Sampler sampler, StopLimits limits, const InterruptFlag& interrupt,
               std::FILE* progress_stream, const Terminal& progress_terminal);

    /// Feeds what of `tokens` was not fed yet and generates into `output` until a limit, a stop
    /// string or Ctrl+C, which is for the caller to clear. `tokens` fit the context.
    [[nodiscard]] Result<Turn> run(std::span<const TokenId> tokens, TextOutput& output);

private:
    [[nodiscard]] Status prefill(std::span<const TokenId> tokens, TurnTally& tally);
    [[nodiscard]] Status generate(TextOutput& output, Turn& turn);
    [[nodiscard]] Status feed(std::span<const TokenId> tokens);
    /// Whether the model chooses: nothing is sampled, and logits need not leave it.
    [[nodiscard]] bool model_chooses() const {
        return sampler_.is_greedy() && model_.feed_greedy != nullptr;
    }
    [[nodiscard]] Result<TokenId> next_token();

    TokenModel model_;
    Sampler sampler_;
    StopLimits limits_;
    const InterruptFlag* interrupt_;
    std::FILE* progress_stream_;
    Terminal progress_terminal_;
    std::vector<TokenId> fed_;
    std::span<const float> logits_;  // [vocab] of the last of `fed_`, unless the model chooses
    TokenId chosen_ = 0;             // behind `fed_`, where the model chooses
};

}  // namespace plimsoll
