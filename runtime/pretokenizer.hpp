#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

/// Cuts text into the pieces that BPE works on one by one, by the rules of the DeepSeek-V3
/// tokenizer (`joyai-llm` in GGUF files): digits in threes, runs of Han and kana, words with one
/// character before them, punctuation with the newlines after it, white space.
///
/// Bytes that are not UTF-8 are cut out first: each maximal run of them is a piece of its own and
/// ends the text before it. So no byte is lost, and valid text is cut as if the reference had been
/// given it alone.
///
/// Immutable after `create`; may be used by several threads.
class Pretokenizer {
public:
    /// Compiles the patterns. Fails where the PCRE2 library at hand was built without Unicode.
    [[nodiscard]] static Result<Pretokenizer> create();

    Pretokenizer(Pretokenizer&&) noexcept;
    Pretokenizer& operator=(Pretokenizer&&) noexcept;
    ~Pretokenizer();

    /// The pieces of `text`, in order, none empty; together they are `text`. They point into it.
    [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

private:
    struct Patterns;
    explicit Pretokenizer(std::unique_ptr<Patterns> patterns);

    std::unique_ptr<Patterns> patterns_;
};

}  // namespace plimsoll
