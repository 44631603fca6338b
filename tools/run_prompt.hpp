#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "planner/result.hpp"
#include "runtime/chat.hpp"
#include "runtime/tokenizer.hpp"
#include "tools/run_options.hpp"

namespace plimsoll {

/// The text of a prompt that is an argument, a file or the standard input `input`, without the
/// newline that a file ends with; --raw keeps it. Refuses one that is empty, larger than 64 MiB or
/// not UTF-8, and a file that cannot be read.
[[nodiscard]] Result<std::string> read_prompt(const RunOptions& options, PromptSource source,
                                              std::FILE* input);

/// Messages a conversation begins with: the system text, where there is one.
[[nodiscard]] std::vector<Message> opening_messages(const RunOptions& options);

/// Tokens of a single prompt: by the chat template, or with --raw BOS and the text as it is.
[[nodiscard]] Result<std::vector<TokenId>> encode_prompt(const RunOptions& options, ThinkMode think,
                                                         const std::string& text,
                                                         const Tokenizer& tokenizer);

/// Tokens of a conversation, ending where the model is to reply.
[[nodiscard]] Result<std::vector<TokenId>> encode_chat(std::span<const Message> messages,
                                                       ThinkMode think, const Tokenizer& tokenizer);

/// Refuses a prompt that the planned context cannot hold, or that leaves no room for a token where
/// one is to be generated.
[[nodiscard]] Status check_prompt_length(std::uint64_t prompt_tokens, std::uint64_t context_tokens,
                                         bool generates);

}  // namespace plimsoll
