#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/result.hpp"
#include "runtime/byte_pairs.hpp"
#include "runtime/pretokenizer.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll {

/// What a GGUF file says in `tokenizer.ggml.*`. Not yet trusted.
struct TokenizerTables {
    std::vector<std::string> tokens;  // [vocab] in the byte alphabet; special tokens as they are
    std::vector<std::string> merges;  // "left right" in the byte alphabet, by rank
    std::vector<std::int32_t>
        token_types;  // [vocab] 1 normal, 3 control, 4 user defined, …; may be empty
};

/// Tokens the chat format and the stop rules name. Found by their text.
struct SpecialTokens {
    TokenId bos = 0;
    TokenId eos = 0;
    TokenId user = 0;
    TokenId assistant = 0;
    TokenId think_begin = 0;
    TokenId think_end = 0;
    TokenId dsml = 0;
};

/// Their texts, with U+FF5C for the bar and U+2581 for the low line.
inline constexpr std::string_view kBosText = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
inline constexpr std::string_view kEosText = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
inline constexpr std::string_view kUserText = "<\uFF5CUser\uFF5C>";
inline constexpr std::string_view kAssistantText = "<\uFF5CAssistant\uFF5C>";
inline constexpr std::string_view kThinkBeginText = "<think>";
inline constexpr std::string_view kThinkEndText = "</think>";
inline constexpr std::string_view kDsmlText = "\uFF5CDSML\uFF5C";

/// A stretch of a prompt and whose it is.
struct PromptPart {
    enum class Kind : std::uint8_t {
        markup,  // ours: special strings in it become their tokens
        text,    // anybody's: special strings in it are letters and bars, never control tokens
    };
    Kind kind = Kind::text;
    std::string text;

    bool operator==(const PromptPart&) const = default;
};

/// Byte-level BPE by the rules of the DeepSeek-V3 tokenizer. No normalisation, no space put before,
/// no BOS or EOS added. Immutable after `create`; may be used by several threads. Any bytes can be
/// encoded, and decoding gives them back.
class Tokenizer {
public:
    /// Checks the tables and indexes them. Refused with one line that names the entry: sizes that
    /// differ, a token twice or empty, a byte without a token, a special token that is missing, a
    /// merge of unknown tokens or given twice.
    [[nodiscard]] static Result<Tokenizer> create(TokenizerTables tables);

    /// Tokens of `text`, in which special strings mean nothing.
    [[nodiscard]] std::vector<TokenId> encode_text(std::string_view text) const;

    /// Tokens of rendered chat text: special strings, the longest at each position, become their
    /// tokens. Not for text of users, who could write such strings.
    [[nodiscard]] std::vector<TokenId> encode_markup(std::string_view text) const;

    /// Tokens of a prompt of both kinds. The text between two special tokens is encoded as one,
    /// across parts, so that the result is that of the whole rendered text except where a `text`
    /// part holds a special string.
    [[nodiscard]] std::vector<TokenId> encode(std::span<const PromptPart> parts) const;

    /// The bytes a token stands for: seldom whole characters, see Utf8Stream. A special token gives
    /// its text. `id` is in [0, vocab_size). Valid as long as the tokenizer.
    [[nodiscard]] std::string_view bytes(TokenId id) const;

    /// The bytes of several tokens.
    [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

    [[nodiscard]] std::uint32_t vocab_size() const {
        return static_cast<std::uint32_t>(byte_ends_.size());
    }
    [[nodiscard]] const SpecialTokens& special() const { return special_; }
    [[nodiscard]] bool is_special(TokenId id) const;

    /// The token of exactly this text as the table has it: special text as is, other tokens in the
    /// byte alphabet.
    [[nodiscard]] std::optional<TokenId> find(std::string_view token) const;

    /// Things in the tables that are odd but usable, one line each: special tokens at unusual ids.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

private:
    struct SpecialText {
        std::string text;
        TokenId id = 0;
    };

    explicit Tokenizer(Pretokenizer pretokenizer) : pretokenizer_(std::move(pretokenizer)) {}

    [[nodiscard]] Status index_tokens(const TokenizerTables& tables);
    [[nodiscard]] Status index_bytes();
    [[nodiscard]] Status index_special_tokens();
    [[nodiscard]] Status index_merges(const std::vector<std::string>& merges);
    void append_text(std::string_view text, std::vector<TokenId>& out) const;
    [[nodiscard]] const SpecialText* special_at(std::string_view text) const;

    Pretokenizer pretokenizer_;
    std::vector<std::string> tokens_;                    // [vocab] as in the file
    std::unordered_map<std::string_view, TokenId> ids_;  // views into tokens_
    std::string token_bytes_;                            // of all tokens, one after the other
    std::vector<std::uint64_t> byte_ends_;               // [vocab] where each ends in token_bytes_
    std::vector<TokenId> byte_ids_;                      // [256] token of each byte
    std::vector<SpecialText> special_texts_;             // sorted by text
    std::vector<bool> is_special_;                       // [vocab]
    BytePairs pairs_;
    SpecialTokens special_;
    std::vector<std::string> notes_;
};

}  // namespace plimsoll
