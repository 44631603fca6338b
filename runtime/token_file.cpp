#include "runtime/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/text_edit.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;
constexpr std::string_view kSpace = " \t\r\n\v\f";

/// One id as it stands in the text, or what is wrong with it.
Result<TokenId> parse_id(std::string_view word, const std::string& source, std::size_t position,
                         std::uint32_t vocab_size) {
    const auto fail = [&](const std::string& what) {
        return Error{ErrorKind::bad_file,
                     fmt::format("{}: token {} is '{}'{}, {}", source, position, word.substr(0, 24),
                                 word.size() > 24 ? "…" : "", what)};
    };
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    const bool whole = end == word.data() + word.size();
    if (error == std::errc::invalid_argument || !whole) return fail("not a whole number");
    if (error != std::errc() || id < 0 || id >= static_cast<std::int64_t>(vocab_size)) {
        return fail(fmt::format("the vocabulary has ids 0 to {}", std::int64_t{vocab_size} - 1));
    }
    return static_cast<TokenId>(id);
}

Result<std::vector<TokenId>> parse_case(std::string_view text, const std::string& source,
                                        std::uint32_t vocab_size) {
    const auto fail = [&](const char* what) {
        return Error{ErrorKind::bad_file, source + ": " + what};
    };
    if (json_nests_deeper(text, kJsonLevelsMax)) return fail("JSON nested too deep");
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) return fail("begins like JSON but is none");
    const auto tokens = json.find("tokens");
    if (tokens == json.end() || !tokens->is_array()) return fail("no array \"tokens\"");
    std::vector<TokenId> out;
    out.reserve(tokens->size());
    for (const auto& token : *tokens) {
        const std::string word =
            token.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        const auto id = parse_id(word, source, out.size(), vocab_size);
        if (!id) return id.error();
        out.push_back(*id);
    }
    return out;
}

}  // namespace

Result<std::vector<TokenId>> parse_tokens(std::string_view text, const std::string& source,
                                          std::uint32_t vocab_size) {
    std::vector<TokenId> out;
    std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    if (begin < text.size() && text[begin] == '{') return parse_case(text, source, vocab_size);
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
        const auto id = parse_id(text.substr(begin, end - begin), source, out.size(), vocab_size);
        if (!id) return id.error();
        out.push_back(*id);
        begin = std::min(text.find_first_not_of(kSpace, end), text.size());
    }
    if (out.empty()) return Error{ErrorKind::bad_file, source + ": no token ids"};
    return out;
}

Result<std::vector<TokenId>> read_token_file(const std::string& path, std::uint32_t vocab_size) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Error{ErrorKind::bad_file, path + ": cannot be opened"};
    // One byte more than is allowed tells a file that is too long; its size may not be known (a
    // pipe).
    std::string text(kFileBytesMax + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) return Error{ErrorKind::bad_file, path + ": cannot be read"};
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kFileBytesMax) return Error{ErrorKind::bad_file, path + ": over 64 MiB"};
    return parse_tokens(text, path, vocab_size);
}

}  // namespace plimsoll
