#include "runtime/chat.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/tool_markup.hpp"

namespace plimsoll {
namespace {

/// Official wording; the last line is empty.
constexpr std::string_view kMaxEffortText =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve "
    "the root cause, rigorously stress-testing your logic against all potential paths, edge cases, "
    "and "
    "adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n"
    "\n";

constexpr std::string_view kReminderText = "<\uFF5Clatest_reminder\uFF5C>";

bool asks(Role role) { return role == Role::user || role == Role::developer || role == Role::tool; }

class ChatRenderer {
public:
    ChatRenderer(std::span<const Message> messages, const ChatOptions& options)
        : messages_(messages), options_(options) {
        for (std::size_t i = 0; i < messages.size(); ++i) {
            if (asks(messages[i].role)) last_question_ = i;
        }
    }

    Result<std::vector<PromptPart>> render() {
        markup(kBosText);
        if (options_.think == ThinkMode::max) markup(kMaxEffortText);
        if (Status status = render_tools_without_system(); !status) return status.error();
        for (std::size_t i = 0; i < messages_.size();) {
            const Message& message = messages_[i];
            if (message.role == Role::tool) {
                i = render_results(i);
                continue;
            }
            if (Status status = render_message(message, i); !status) return status.error();
            ++i;
        }
        if (messages_.back().role != Role::assistant) {
            markup(kAssistantText);
            markup(options_.think == ThinkMode::off ? kThinkEndText : kThinkBeginText);
        }
        return std::move(parts_);
    }

private:
    void markup(std::string_view text) { append_part(PromptPart::Kind::markup, text, parts_); }
    void text(std::string_view text) { append_part(PromptPart::Kind::text, text, parts_); }

    Status render_tools_without_system() {
        const bool has_system =
            std::any_of(messages_.begin(), messages_.end(),
                        [](const Message& m) { return m.role == Role::system; });
        return has_system ? ok_status() : render_tools();
    }

    /// Once, after the first system text or in its place.
    Status render_tools() {
        if (options_.tools.empty() || std::exchange(tools_rendered_, true)) return ok_status();
        markup("\n\n");
        return declare_tools(options_.tools, parts_);
    }

    Status render_message(const Message& message, std::size_t index) {
        switch (message.role) {
            case Role::system: text(message.content); return render_tools();
            case Role::latest_reminder:
                markup(kReminderText);
                text(message.content);
                return ok_status();
            case Role::assistant: render_reply(message, index); return ok_status();
            case Role::developer:
            case Role::user:
            case Role::tool:
                markup(kUserText);
                text(message.content);
                return ok_status();
        }
        return ok_status();
    }

    void render_reply(const Message& message, std::size_t index) {
        const bool keep_reasoning =
            options_.think != ThinkMode::off && (!options_.tools.empty() || index > last_question_);
        markup(kAssistantText);
        if (keep_reasoning) {
            markup(kThinkBeginText);
            text(message.reasoning);
        }
        markup(kThinkEndText);
        text(message.content);
        render_tool_calls(message.tool_calls, parts_);
        markup(kEosText);
    }

    /// All results from `first` on, and user text between them, as one user turn. Returns the index
    /// after it.
    std::size_t render_results(std::size_t first) {
        std::size_t end = first;
        while (end < messages_.size() &&
               (messages_[end].role == Role::tool || messages_[end].role == Role::user)) {
            ++end;
        }
        markup(kUserText);
        const std::vector<const Message*> ordered = in_order_of_calls(first, end);
        for (std::size_t i = 0; i < ordered.size(); ++i) {
            if (i != 0) markup("\n\n");
            if (ordered[i]->role == Role::tool) {
                render_tool_result(ordered[i]->content, parts_);
            } else {
                text(ordered[i]->content);
            }
        }
        return end;
    }

    /// Results sorted as the turn before them called; the places of other messages among them stay.
    std::vector<const Message*> in_order_of_calls(std::size_t first, std::size_t end) const {
        std::vector<const Message*> results;
        std::vector<const Message*> out;
        for (std::size_t i = first; i < end; ++i) {
            out.push_back(&messages_[i]);
            if (messages_[i].role == Role::tool) results.push_back(&messages_[i]);
        }
        if (first == 0) return out;
        const std::vector<ToolCall>& calls = messages_[first - 1].tool_calls;
        const auto call_index = [&](const Message* result) {
            return std::find_if(
                       calls.begin(), calls.end(),
                       [&](const ToolCall& call) { return call.id == result->tool_call_id; }) -
                   calls.begin();
        };
        std::stable_sort(results.begin(), results.end(), [&](const Message* a, const Message* b) {
            return call_index(a) < call_index(b);
        });
        auto next_result = results.begin();
        for (const Message*& message : out) {
            if (message->role == Role::tool) message = *next_result++;
        }
        return out;
    }

    std::span<const Message> messages_;
    const ChatOptions& options_;
    std::vector<PromptPart> parts_;
    std::size_t last_question_ = 0;
    bool tools_rendered_ = false;
};

}  // namespace

ThinkMode think_mode_for_context(ThinkMode wanted, std::uint64_t context_tokens) {
    const bool too_short = context_tokens < kThinkMaxContextTokens;
    return wanted == ThinkMode::max && too_short ? ThinkMode::high : wanted;
}

Result<std::vector<PromptPart>> render_chat(std::span<const Message> messages,
                                            const ChatOptions& options) {
    if (messages.empty()) return Error{ErrorKind::usage, "a conversation without messages"};
    return ChatRenderer(messages, options).render();
}

std::string text_of(std::span<const PromptPart> parts) {
    std::string out;
    for (const PromptPart& part : parts) out += part.text;
    return out;
}

}  // namespace plimsoll
