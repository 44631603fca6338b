#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/result.hpp"
#include "runtime/chat.hpp"

namespace plimsoll {

/// Appends to the last part where that is of the same kind, else a new part. Empty text adds
/// nothing.
void append_part(PromptPart::Kind kind, std::string_view text, std::vector<PromptPart>& parts);

/// Appends the official block that tells the model which tools there are and how to call them.
/// `tools` as in ChatOptions; an error names the one that is not a JSON object.
[[nodiscard]] Status declare_tools(std::span<const std::string> tools,
                                   std::vector<PromptPart>& parts);

/// Appends a block of calls, two newlines before it; nothing where there are none. String arguments
/// are raw text, others JSON, in the order of the argument object.
void render_tool_calls(std::span<const ToolCall> calls, std::vector<PromptPart>& parts);

/// Appends `<tool_result>…</tool_result>`.
void render_tool_result(std::string_view content, std::vector<PromptPart>& parts);

}  // namespace plimsoll
