#include "runtime/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/check.hpp"
#include "runtime/byte_alphabet.hpp"

namespace plimsoll {
namespace {

/// Longest token of a table we accept, and so of the names that errors quote. The longest real one
/// has 128 bytes.
constexpr std::size_t kTokenBytesMax = 4096;
constexpr std::size_t kVocabSizeMax = std::size_t{1} << 24;

/// Size of the published vocabulary, whose special tokens have known ids.
constexpr std::size_t kPublishedVocabSize = 129280;

/// Values of `tokenizer.ggml.token_type`.
constexpr std::int32_t kTypeControl = 3;
constexpr std::int32_t kTypeUserDefined = 4;

/// What a table must have, and the ids the published one has them at.
struct RequiredToken {
    std::string_view text;
    TokenId SpecialTokens::*field;
    TokenId published_id;
};
constexpr RequiredToken kRequiredTokens[] = {
    {kBosText, &SpecialTokens::bos, 0},
    {kEosText, &SpecialTokens::eos, 1},
    {kUserText, &SpecialTokens::user, 128803},
    {kAssistantText, &SpecialTokens::assistant, 128804},
    {kThinkBeginText, &SpecialTokens::think_begin, 128821},
    {kThinkEndText, &SpecialTokens::think_end, 128822},
    {kDsmlText, &SpecialTokens::dsml, 128825},
};

Error bad_table(std::string message) {
    return Error{ErrorKind::bad_file, "tokenizer: " + std::move(message)};
}

/// `text` for a message: short, and nothing in it that a terminal would obey.
std::string quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text.substr(0, 40)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F) {
            out += fmt::format("\\x{:02x}", byte);
        } else {
            out.push_back(c);
        }
    }
    return out + (text.size() > 40 ? "…'" : "'");
}

bool is_required(std::string_view token) {
    return std::any_of(std::begin(kRequiredTokens), std::end(kRequiredTokens),
                       [&](const RequiredToken& required) { return required.text == token; });
}

}  // namespace

Result<Tokenizer> Tokenizer::create(TokenizerTables tables) {
    Result<Pretokenizer> pretokenizer = Pretokenizer::create();
    if (!pretokenizer) return pretokenizer.error();
    Tokenizer tokenizer(std::move(pretokenizer).value());

    const std::size_t vocab_size = tables.tokens.size();
    if (vocab_size == 0 || vocab_size > kVocabSizeMax) {
        return bad_table(fmt::format("{} tokens; 1 to {} are possible", vocab_size, kVocabSizeMax));
    }
    if (!tables.token_types.empty() && tables.token_types.size() != vocab_size) {
        return bad_table(
            fmt::format("{} token types for {} tokens", tables.token_types.size(), vocab_size));
    }
    tokenizer.tokens_ = std::move(tables.tokens);
    if (Status status = tokenizer.index_tokens(tables); !status) return status.error();
    if (Status status = tokenizer.index_special_tokens(); !status) return status.error();
    if (Status status = tokenizer.index_bytes(); !status) return status.error();
    if (Status status = tokenizer.index_merges(tables.merges); !status) return status.error();
    return tokenizer;
}

Status Tokenizer::index_tokens(const TokenizerTables& tables) {
    ids_.reserve(tokens_.size());
    byte_ends_.reserve(tokens_.size());
    is_special_.reserve(tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const std::string& token = tokens_[i];
        const auto id = static_cast<TokenId>(i);
        if (token.empty()) return bad_table(fmt::format("token {} is empty", id));
        if (token.size() > kTokenBytesMax) {
            return bad_table(fmt::format("token {} has {} bytes; at most {} are possible", id,
                                         token.size(), kTokenBytesMax));
        }
        const auto [other, added] = ids_.emplace(token, id);
        if (!added) {
            return bad_table(
                fmt::format("tokens {} and {} are both {}", other->second, id, quoted(token)));
        }
        // A token outside the byte alphabet cannot be made by merges; files differ in how they type
        // such tokens, so the text decides before the type does.
        const std::int32_t type = tables.token_types.empty() ? 0 : tables.token_types[i];
        const auto bytes = bytes_of_symbols(token);
        const bool special =
            !bytes || type == kTypeControl || type == kTypeUserDefined || is_required(token);
        is_special_.push_back(special);
        if (special) special_texts_.push_back({token, id});
        token_bytes_ += special ? token : *bytes;
        byte_ends_.push_back(token_bytes_.size());
    }
    std::sort(special_texts_.begin(), special_texts_.end(),
              [](const SpecialText& a, const SpecialText& b) { return a.text < b.text; });
    return ok_status();
}

Status Tokenizer::index_special_tokens() {
    std::string missing;
    for (const RequiredToken& required : kRequiredTokens) {
        const auto id = find(required.text);
        if (!id) {
            missing += (missing.empty() ? "" : ", ") + std::string(required.text);
            continue;
        }
        special_.*required.field = *id;
        if (tokens_.size() == kPublishedVocabSize && *id != required.published_id) {
            notes_.push_back(
                fmt::format("tokenizer: {} is token {}, in the published table it is {}",
                            required.text, *id, required.published_id));
        }
    }
    if (!missing.empty()) return bad_table("the table lacks " + missing);
    return ok_status();
}

Status Tokenizer::index_bytes() {
    std::size_t missing_count = 0;
    unsigned first_missing = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::string symbol;
        append_utf8(kByteToCodePoint[byte], symbol);
        const auto id = find(symbol);
        if ((!id || is_special(*id)) && missing_count++ == 0) first_missing = byte;
        byte_ids_.push_back(id.value_or(0));
    }
    if (missing_count != 0) {
        return bad_table(fmt::format("{} of the 256 bytes have no token, the first is 0x{:02X}",
                                     missing_count, first_missing));
    }
    return ok_status();
}

Status Tokenizer::index_merges(const std::vector<std::string>& merges) {
    if (merges.size() > kVocabSizeMax) {
        return bad_table(
            fmt::format("{} merges; at most {} are possible", merges.size(), kVocabSizeMax));
    }
    std::vector<Merge> pairs;
    pairs.reserve(merges.size());
    std::unordered_map<std::string_view, std::size_t> ranks;
    ranks.reserve(merges.size());
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::string_view merge = merges[rank];
        const std::size_t space = merge.find(' ');
        if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
            merge.find(' ', space + 1) != std::string_view::npos) {
            return bad_table(fmt::format("merge {} is {}, not two tokens with a space between",
                                         rank, quoted(merge)));
        }
        if (const auto [other, added] = ranks.emplace(merge, rank); !added) {
            return bad_table(
                fmt::format("merges {} and {} are both {}", other->second, rank, quoted(merge)));
        }
        const std::string joined =
            std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1));
        const std::string_view names[] = {merge.substr(0, space), merge.substr(space + 1), joined};
        TokenId ids[3] = {};
        for (int i = 0; i < 3; ++i) {
            const auto id = find(names[i]);
            if (!id || is_special(*id)) {
                return bad_table(fmt::format("merge {} ({}) names {}, which is {}", rank,
                                             quoted(merge), quoted(names[i]),
                                             id ? "a special token" : "no token"));
            }
            ids[i] = *id;
        }
        pairs.push_back({ids[0], ids[1], ids[2]});
    }
    pairs_ = BytePairs(std::move(pairs));
    return ok_status();
}

const Tokenizer::SpecialText* Tokenizer::special_at(std::string_view text) const {
    // Narrows the sorted list to the texts that agree with `text` on ever more bytes; a text that
    // ends there is the first of those left.
    auto first = special_texts_.begin();
    auto last = special_texts_.end();
    const SpecialText* longest = nullptr;
    for (std::size_t i = 0; i < text.size() && first != last; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto byte_of = [&](const SpecialText& special) {
            return static_cast<unsigned char>(special.text[i]);
        };
        first = std::partition_point(first, last, [&](const auto& s) { return byte_of(s) < byte; });
        last = std::partition_point(first, last, [&](const auto& s) { return byte_of(s) <= byte; });
        if (first != last && first->text.size() == i + 1) {
            longest = &*first;
            ++first;
        }
    }
    return longest;
}

void Tokenizer::append_text(std::string_view text, std::vector<TokenId>& out) const {
    std::vector<TokenId> symbols;
    for (const std::string_view piece : pretokenizer_.split(text)) {
        symbols.clear();
        for (const char byte : piece)
            symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        pairs_.merge(symbols, out);
    }
}

std::vector<TokenId> Tokenizer::encode_text(std::string_view text) const {
    std::vector<TokenId> out;
    append_text(text, out);
    return out;
}

std::vector<TokenId> Tokenizer::encode_markup(std::string_view text) const {
    const PromptPart part{PromptPart::Kind::markup, std::string(text)};
    return encode({&part, 1});
}

std::vector<TokenId> Tokenizer::encode(std::span<const PromptPart> parts) const {
    std::vector<TokenId> out;
    std::string between;  // text since the last special token
    for (const PromptPart& part : parts) {
        std::string_view rest = part.text;
        if (part.kind == PromptPart::Kind::text) {
            between += rest;
            continue;
        }
        while (!rest.empty()) {
            const SpecialText* special = special_at(rest);
            if (special == nullptr) {
                between.push_back(rest.front());
                rest.remove_prefix(1);
                continue;
            }
            append_text(between, out);
            between.clear();
            out.push_back(special->id);
            rest.remove_prefix(special->text.size());
        }
    }
    append_text(between, out);
    return out;
}

std::string_view Tokenizer::bytes(TokenId id) const {
    PLIMSOLL_CHECK(id >= 0 && static_cast<std::size_t>(id) < byte_ends_.size(),
                   fmt::format("token {} of {}", id, byte_ends_.size()));
    const auto index = static_cast<std::size_t>(id);
    const std::size_t begin = index == 0 ? 0 : byte_ends_[index - 1];
    return std::string_view(token_bytes_).substr(begin, byte_ends_[index] - begin);
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
    std::string out;
    for (const TokenId id : ids) out += bytes(id);
    return out;
}

bool Tokenizer::is_special(TokenId id) const { return is_special_[static_cast<std::size_t>(id)]; }

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

}  // namespace plimsoll
