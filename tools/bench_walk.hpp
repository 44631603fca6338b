#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/result.hpp"
#include "runtime/random.hpp"
#include "tools/interrupt.hpp"
#include "tools/run_turn.hpp"

namespace plimsoll {

/// One context, measured.
struct BenchRow {
    std::uint64_t ctx_tokens = 0;
    std::uint64_t prefill_tokens = 0;  // fed to get here from what was there before
    double prefill_seconds = 0;
    std::uint64_t gen_tokens = 0;
    double gen_seconds = 0;
    std::uint64_t kvcache_bytes = 0;
};

/// Walks a model from context to context. The prompt is of random tokens, the same each time;
/// what is generated is the most likely token, and counts as context.
class ContextWalk {
public:
    /// `model` has `feed_greedy`. `interrupt` outlives the walk: raised, the call that runs ends
    /// with an error of that kind.
    ContextWalk(TokenModel model, std::uint32_t vocab_size, const InterruptFlag& interrupt);

    /// Feeds so many tokens, at most a chunk, then generates, and forgets both: a processor's and
    /// a GPU's clocks rise meanwhile.
    [[nodiscard]] Status warm_up(std::uint64_t prompt_tokens, std::uint64_t gen_tokens);

    /// Feeds up to the context, chunk by chunk, and generates there. The cache's size is left to
    /// the caller.
    [[nodiscard]] Result<BenchRow> measure(std::uint64_t context_tokens, std::uint64_t gen_tokens);

    /// The next tokens of the prompt.
    [[nodiscard]] std::vector<TokenId> random_tokens(std::uint64_t count);

private:
    [[nodiscard]] Status feed(std::uint64_t count);
    [[nodiscard]] Status feed_chunk(std::span<const TokenId> tokens);
    [[nodiscard]] Status generate(std::uint64_t count);

    TokenModel model_;
    std::uint32_t vocab_size_;
    const InterruptFlag& interrupt_;
    Random random_;
    std::uint64_t position_ = 0;
    TokenId next_ = 0;
};

}  // namespace plimsoll
