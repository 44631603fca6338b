#pragma once

#include <cstdio>
#include <string>

#include "planner/result.hpp"
#include "runtime/stop.hpp"
#include "runtime/tokenizer.hpp"
#include "runtime/utf8.hpp"

namespace plimsoll {

/// The text of one generated turn, from tokens to a stream, each piece shown at once: whole
/// characters only, nothing that a stop string may still take back, and no EOS.
class TextOutput {
public:
    /// `stream` and `tokenizer` outlive it. `stops` ends this turn only: one of its own for each.
    TextOutput(std::FILE* stream, const Tokenizer& tokenizer, StopStrings stops);

    /// Writes what `token` makes certain. True once a stop string is complete. An error, kind io,
    /// where the stream takes no more.
    [[nodiscard]] Result<bool> push(TokenId token);

    /// The turn ends: writes what was held back.
    [[nodiscard]] Status finish();

    /// All that was written.
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    [[nodiscard]] Status write(const std::string& piece);

    std::FILE* stream_;
    const Tokenizer* tokenizer_;
    StopStrings stops_;
    Utf8Stream characters_;
    std::string text_;
};

}  // namespace plimsoll
