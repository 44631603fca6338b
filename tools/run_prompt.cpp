#include "tools/run_prompt.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "planner/units.hpp"
#include "runtime/utf8.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;

Status check_utf8(std::string_view text, const std::string& name) {
    const std::size_t valid_bytes = valid_utf8_prefix_bytes(text);
    if (valid_bytes == text.size()) return ok_status();
    return Error{ErrorKind::bad_file,
                 fmt::format("{}: byte {} (0x{:02x}) is not UTF-8 text", name, valid_bytes,
                             static_cast<unsigned char>(text[valid_bytes]))};
}

void drop_last_newline(std::string& text) {
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (!text.empty() && text.back() == '\r') text.pop_back();
}

Result<std::string> read_text(std::FILE* stream, const std::string& name) {
    std::string text;
    char piece[1 << 16];
    std::size_t got_bytes = 0;
    while ((got_bytes = std::fread(piece, 1, sizeof piece, stream)) > 0) {
        text.append(piece, got_bytes);
        if (text.size() > kTextBytesMax) {
            return Error{ErrorKind::bad_file, fmt::format("{}: more than {} of text", name,
                                                          format_bytes(kTextBytesMax))};
        }
    }
    if (std::ferror(stream) != 0) {
        return Error{ErrorKind::bad_file, fmt::format("{}: {}", name, std::strerror(errno))};
    }
    return text;
}

}  // namespace

Result<std::string> read_prompt(const RunOptions& options, PromptSource source, std::FILE* input) {
    const bool is_argument = source == PromptSource::argument;
    const bool is_file = source == PromptSource::file;
    const std::string name = is_argument ? "-p" : is_file ? *options.prompt_path : "standard input";
    Result<std::string> text = is_argument ? Result<std::string>(*options.prompt)
                               : is_file   ? read_text_file(name)
                                           : read_text(input, name);
    if (!text) return text;
    if (const Status checked = check_utf8(*text, name); !checked) return checked.error();
    if (!is_argument && !options.raw) drop_last_newline(*text);
    if (text->empty()) {
        return Error{
            ErrorKind::usage,
            fmt::format("{} is empty: give a prompt with -p, -f or the standard input", name)};
    }
    return text;
}

std::vector<Message> opening_messages(const RunOptions& options) {
    std::vector<Message> messages;
    if (options.system) messages.push_back({.role = Role::system, .content = *options.system});
    return messages;
}

Result<std::vector<TokenId>> encode_prompt(const RunOptions& options, ThinkMode think,
                                           const std::string& text, const Tokenizer& tokenizer) {
    if (options.raw) {
        std::vector<TokenId> tokens = {tokenizer.special().bos};
        const std::vector<TokenId> rest = tokenizer.encode_text(text);
        tokens.insert(tokens.end(), rest.begin(), rest.end());
        return tokens;
    }
    std::vector<Message> messages = opening_messages(options);
    messages.push_back({.role = Role::user, .content = text});
    return encode_chat(messages, think, tokenizer);
}

Result<std::vector<TokenId>> encode_chat(std::span<const Message> messages, ThinkMode think,
                                         const Tokenizer& tokenizer) {
    const Result<std::vector<PromptPart>> parts = render_chat(messages, {.think = think});
    if (!parts) return parts.error();
    return tokenizer.encode(*parts);
}

Status check_prompt_length(std::uint64_t prompt_tokens, std::uint64_t context_tokens,
                           bool generates) {
    const std::uint64_t needed_tokens = prompt_tokens + (generates ? 1 : 0);
    if (needed_tokens <= context_tokens) return ok_status();
    return Error{
        ErrorKind::usage,
        fmt::format("the prompt has {} tokens{} and the plan holds a context of {}: shorten "
                    "it by {} or give --ctx {}",
                    format_count(prompt_tokens), generates ? " and a reply needs 1 at least" : "",
                    format_count(context_tokens), format_count(needed_tokens - context_tokens),
                    needed_tokens)};
}

}  // namespace plimsoll
