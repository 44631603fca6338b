#include "runtime/synthetic_tokenizer.hpp"

#include <fmt/format.h>

#include <iterator>

#include "runtime/byte_alphabet.hpp"

namespace plimsoll {
namespace {

constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4;

struct SpecialToken {
    std::string_view text;
    std::uint32_t published_id;
    std::int32_t type;
};
// Ids as in the tokenizer of DeepSeek-V4-Flash.
constexpr SpecialToken kSpecialTokens[] = {
    {kBosText, 0, kControl},
    {kEosText, 1, kControl},
    {"<\uFF5C\u2581pad\u2581\uFF5C>", 2, kControl},
    {kUserText, 128'803, kControl},
    {kAssistantText, 128'804, kControl},
    {kThinkBeginText, 128'821, kUserDefined},
    {kThinkEndText, 128'822, kUserDefined},
    {kDsmlText, 128'825, kUserDefined},
    {"<\uFF5Clatest_reminder\uFF5C>", 128'828, kControl},
};

constexpr std::size_t kByteCount = 256;

/// Runs of lower-case letters, shorter ones first, each with the merge that makes it: all but the
/// last letter, and the last. aa, ab, …, zz, aaa, …
class LetterRuns {
public:
    struct Run {
        std::string text;
        std::string merge;
    };
    Run next() {
        const Run run{text_, text_.substr(0, text_.size() - 1) + " " + text_.back()};
        step();
        return run;
    }

private:
    void step() {
        for (std::size_t at = text_.size(); at-- > 0;) {
            if (text_[at] != 'z') {
                ++text_[at];
                return;
            }
            text_[at] = 'a';
        }
        text_ += 'a';
    }

    std::string text_ = "aa";
};

}  // namespace

Result<TokenizerTables> synthetic_tokenizer(std::uint32_t vocab_size) {
    constexpr std::size_t kTokensMin = std::size(kSpecialTokens) + kByteCount;
    if (vocab_size < kTokensMin)
        return Error{ErrorKind::usage,
                     fmt::format("a vocabulary of {} has no room for {} bytes and special tokens",
                                 vocab_size, kTokensMin)};
    TokenizerTables tables;
    tables.tokens.resize(vocab_size);
    tables.token_types.assign(vocab_size, kNormal);
    std::uint32_t next_free = 0;
    const auto skip_taken = [&] {
        while (next_free < vocab_size && !tables.tokens[next_free].empty()) ++next_free;
    };
    for (const SpecialToken& special : kSpecialTokens) {
        skip_taken();
        const std::uint32_t id =
            special.published_id < vocab_size ? special.published_id : next_free;
        tables.tokens[id] = special.text;
        tables.token_types[id] = special.type;
    }
    for (std::size_t byte = 0; byte < kByteCount; ++byte) {
        skip_taken();
        tables.tokens[next_free] = symbols_of_bytes(std::string(1, static_cast<char>(byte)));
    }
    LetterRuns runs;
    for (skip_taken(); next_free < vocab_size; skip_taken()) {
        LetterRuns::Run run = runs.next();
        tables.tokens[next_free] = std::move(run.text);
        tables.merges.push_back(std::move(run.merge));
    }
    return tables;
}

}  // namespace plimsoll
