#include "runtime/tokenizer_file.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

namespace plimsoll {
namespace {

struct RequiredText {
    std::string_view key;
    std::string_view value;
};
/// The one kind of tokenizer there is here. llama.cpp's converters write these names.
constexpr RequiredText kKind[] = {
    {"tokenizer.ggml.model", "gpt2"},
    {"tokenizer.ggml.pre", "joyai-llm"},
};

Error in_file(const GgufFile& file, std::string message) {
    return Error{ErrorKind::bad_file, file.path + ": " + std::move(message)};
}

Status check_kind(const GgufFile& file) {
    for (const RequiredText& required : kKind) {
        const GgufEntry* entry = file.find(required.key);
        const auto* text = entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
        if (text == nullptr) {
            return in_file(file, fmt::format("no text {}; '{}' is what we can read", required.key,
                                             required.value));
        }
        if (*text != required.value) {
            return in_file(file, fmt::format("{} is '{}'; only '{}' is known", required.key,
                                             printable(*text), required.value));
        }
    }
    return ok_status();
}

std::vector<std::string> strings_of(const StringTable& table) {
    std::vector<std::string> out;
    out.reserve(table.size());
    for (std::size_t i = 0; i < table.size(); ++i) out.emplace_back(table[i]);
    return out;
}

}  // namespace

Result<Tokenizer> load_tokenizer(const GgufFile& file) {
    if (Status status = check_kind(file); !status) return status.error();
    const auto tokens = read_strings(file, "tokenizer.ggml.tokens");
    if (!tokens) return tokens.error();
    const auto merges = read_strings(file, "tokenizer.ggml.merges");
    if (!merges) return merges.error();
    const auto types = read_integers(file, "tokenizer.ggml.token_type");
    if (!types) return types.error();

    TokenizerTables tables{.tokens = strings_of(*tokens), .merges = strings_of(*merges)};
    for (const std::int64_t type : *types) {
        if (type < 0 || type > std::numeric_limits<std::int32_t>::max()) {
            return in_file(file,
                           fmt::format("token {} is of type {}", tables.token_types.size(), type));
        }
        tables.token_types.push_back(static_cast<std::int32_t>(type));
    }
    Result<Tokenizer> tokenizer = Tokenizer::create(std::move(tables));
    if (!tokenizer) return in_file(file, tokenizer.error().message);
    return tokenizer;
}

}  // namespace plimsoll
