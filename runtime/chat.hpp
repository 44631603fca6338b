#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/result.hpp"
#include "runtime/tokenizer.hpp"

namespace plimsoll {

enum class Role : std::uint8_t { system, developer, user, assistant, tool, latest_reminder };

/// How much the model reasons before it replies. `max` puts a fixed text before everything else.
enum class ThinkMode : std::uint8_t { off, high, max };

/// Below this context `max` leaves too little room for what it provokes.
inline constexpr std::uint64_t kThinkMaxContextTokens = 393'216;

/// `wanted`, or `high` in place of `max` where the context is too short. The caller says so when
/// they differ.
[[nodiscard]] ThinkMode think_mode_for_context(ThinkMode wanted, std::uint64_t context_tokens);

struct ToolCall {
    std::string id;  // of the caller's protocol, never shown to the model; may be empty
    std::string name;
    std::string arguments;  // JSON object text; anything else is passed as one string

    bool operator==(const ToolCall&) const = default;
};

struct Message {
    Role role = Role::user;
    std::string content;
    std::string reasoning;             // assistant only
    std::vector<ToolCall> tool_calls;  // assistant only
    std::string tool_call_id;          // tool only: the call it answers; may be empty

    bool operator==(const Message&) const = default;
};

struct ChatOptions {
    ThinkMode think = ThinkMode::off;
    /// Tools the model may call: JSON objects as of an OpenAI-style list, `{"type": "function",
    /// "function": {…}}` or what is under `function`.
    std::vector<std::string> tools;
};

/// The prompt of a conversation as DeepSeek-V4 was trained with it, messages in order. Ends with
/// the marker that makes the model reply, unless the last message is the assistant's.
///
///     BOS [max-effort text] system text [tools]
///     <|User|>text<|Assistant|><think>reasoning</think>reply EOS …
///
/// Reasoning of earlier turns is left out unless tools are declared. Everything that a message says
/// is a `text` part: it cannot hold control tokens. Errors: no messages, a tool that is not a JSON
/// object.
[[nodiscard]] Result<std::vector<PromptPart>> render_chat(std::span<const Message> messages,
                                                          const ChatOptions& options);

/// The parts as one text, for people and tests.
[[nodiscard]] std::string text_of(std::span<const PromptPart> parts);

}  // namespace plimsoll
