#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/result.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll {

enum class StopReason : std::uint8_t { eos, max_tokens, context_full, stop_string };

/// "end of turn", "token limit", … for the summary line.
[[nodiscard]] std::string_view name_of(StopReason reason);

/// When generation ends on account of tokens. The text is StopStrings' affair.
struct StopLimits {
    TokenId eos = 1;
    std::uint64_t max_tokens = 0;      // generated tokens; 0 is no limit
    std::uint64_t context_tokens = 0;  // what the plan holds, prompt and generated
};

/// Whether `token` is the last. `generated_tokens` counts it, `position_tokens` is what the context
/// holds with it (the prompt and every generated token). EOS is not text; it belongs to the history
/// all the same.
[[nodiscard]] std::optional<StopReason> stop_after(const StopLimits& limits, TokenId token,
                                                   std::uint64_t generated_tokens,
                                                   std::uint64_t position_tokens);

/// Cuts a stream of text before the first stop string. Text that may be the beginning of one is
/// held back until it cannot be any more, so that nothing shown has to be taken back.
class StopStrings {
public:
    /// Refuses an empty stop string and more than 64 KiB of them.
    [[nodiscard]] static Result<StopStrings> create(std::vector<std::string> strings);

    /// Appends to `out` the text that is certain now. True once a stop string is complete: the text
    /// before it is out, it and all later text are dropped. The string that is complete first wins,
    /// of several the longest.
    [[nodiscard]] bool push(std::string_view text, std::string& out);

    /// The text ends here: appends what is held back.
    void finish(std::string& out);

private:
    /// One string and how its matching stands (Knuth, Morris, Pratt 1977).
    struct Pattern {
        std::string text;
        std::vector<std::uint32_t> border;  // [size + 1] longest proper border of each prefix
        std::uint32_t matched = 0;          // longest prefix that the text so far ends with
    };

    std::vector<Pattern> patterns_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace plimsoll
