#include "tools/run_chat.hpp"

#include <fmt/format.h>

#include <utility>

#include "tools/run_prompt.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kNewCommand = "/new";

/// One question and its reply.
Status answer_question(const ChatSetup& setup, std::string question, Conversation& conversation,
                       TurnRunner& runner) {
    const Result<std::vector<TokenId>> tokens = conversation.ask(std::move(question));
    if (!tokens) return tokens.error();
    const Status room = check_prompt_length(tokens->size(), setup.context_tokens, true);
    if (!room) {
        fmt::print(setup.messages, "{}; {} begins a new conversation\n", room.error().message,
                   kNewCommand);
        conversation.take_back();
        return ok_status();
    }
    Result<StopStrings> stops = StopStrings::create(setup.stops);
    if (!stops) return stops.error();
    TextOutput output(setup.replies, *setup.tokenizer, std::move(*stops));
    const Result<Turn> turn = runner.run(*tokens, output);
    if (!turn) return turn.error();
    if (turn->generated.empty()) {
        conversation.take_back();
    } else {
        const bool whole = turn->tally.stop != StopReason::stop_string;
        conversation.answer(turn->generated, output.text(), whole);
        std::fputc('\n', setup.replies);
        std::fflush(setup.replies);
    }
    fmt::print(setup.messages, "[{}]\n", turn_summary(turn->tally, setup.predicted));
    return ok_status();
}

}  // namespace

Status run_chat(const ChatSetup& setup, LineReader& reader, InterruptFlag& interrupt,
                Conversation& conversation, TurnRunner& runner) {
    fmt::print(setup.messages, "Ctrl+C ends a reply, {} begins a new conversation, Ctrl+D ends.\n",
               kNewCommand);
    for (;;) {
        LineInput input = reader.read("> ");
        if (input.kind == LineInput::Kind::end) return ok_status();
        if (input.kind == LineInput::Kind::interrupted || input.text.empty()) continue;
        if (input.text == kNewCommand) {
            conversation.forget();
            fmt::print(setup.messages, "[a new conversation]\n");
            continue;
        }
        const Status done = answer_question(setup, std::move(input.text), conversation, runner);
        if (!done) return done;
        interrupt.clear();
    }
}

}  // namespace plimsoll
