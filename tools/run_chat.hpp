#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "tools/conversation.hpp"
#include "tools/interrupt.hpp"
#include "tools/line_reader.hpp"
#include "tools/run_turn.hpp"

namespace plimsoll {

/// Where a conversation goes and what bounds it.
struct ChatSetup {
    std::FILE* replies = nullptr;   // generated text
    std::FILE* messages = nullptr;  // everything else
    const Tokenizer* tokenizer = nullptr;
    std::vector<std::string> stops;
    std::uint64_t context_tokens = 0;
    Prediction predicted;
};

/// Asks, replies, and asks again until the input ends. Ctrl+C ends a reply, which stays in the
/// history as far as it came. `/new` begins a new conversation. A question that the context has no
/// room for is not asked.
[[nodiscard]] Status run_chat(const ChatSetup& setup, LineReader& reader, InterruptFlag& interrupt,
                              Conversation& conversation, TurnRunner& runner);

}  // namespace plimsoll
