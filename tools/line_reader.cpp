#include "tools/line_reader.hpp"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <utility>

namespace plimsoll {
namespace {

constexpr int kHistoryLines = 500;

/// How long after a line more input counts as pasted with it. A terminal hands a paste over at
/// once; people do not type a line in this time.
constexpr int kPasteWaitMilliseconds = 20;

bool more_input_waits(std::FILE* input) {
    pollfd waiting = {.fd = fileno(input), .events = POLLIN, .revents = 0};
    return poll(&waiting, 1, kPasteWaitMilliseconds) == 1 && (waiting.revents & POLLIN) != 0;
}

void drop_newline(std::string& text) {
    if (!text.empty() && text.back() == '\n') text.pop_back();
}

}  // namespace

struct LineReader::Editor {
    Editor(std::FILE* input, std::FILE* output)
        : line(el_init("plimsoll", input, output, output)), lines(history_init()) {
        HistEvent event;
        history(lines, &event, H_SETSIZE, kHistoryLines);
        history(lines, &event, H_SETUNIQUE, 1);
        el_set(line, EL_EDITOR, "emacs");
        el_set(line, EL_SIGNAL, 0);
        el_set(line, EL_CLIENTDATA, this);
        el_set(line, EL_PROMPT, &Editor::prompt_of);
        el_set(line, EL_HIST, &history, lines);
    }
    ~Editor() {
        el_end(line);
        history_end(lines);
    }
    Editor(const Editor&) = delete;
    Editor& operator=(const Editor&) = delete;

    static char* prompt_of(EditLine* editor) {
        void* self = nullptr;
        el_get(editor, EL_CLIENTDATA, &self);
        return static_cast<Editor*>(self)->prompt.data();
    }

    EditLine* line;
    History* lines;
    std::string prompt;
};

LineReader::LineReader(std::FILE* input, std::FILE* output, InterruptFlag& interrupt)
    : input_(input), output_(output), interrupt_(&interrupt) {
    if (isatty(fileno(input)) == 0) return;
    std::setlocale(LC_CTYPE, "");
    editor_ = std::make_unique<Editor>(input, output);
}

LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;

LineInput LineReader::read(const std::string& prompt) {
    if (editor_ == nullptr) return read_plain();
    std::string text;
    editor_->prompt = prompt;
    do {
        int size_bytes = 0;
        const char* got = el_gets(editor_->line, &size_bytes);
        if (interrupt_->raised()) {
            interrupt_->clear();
            el_reset(editor_->line);
            std::fputc('\n', output_);
            return {.kind = LineInput::Kind::interrupted};
        }
        if (got == nullptr || size_bytes <= 0) {
            if (text.empty()) return {.kind = LineInput::Kind::end};
            break;
        }
        text.append(got, static_cast<std::size_t>(size_bytes));
        editor_->prompt.clear();  // the rest of a paste is not asked for
    } while (more_input_waits(input_));
    drop_newline(text);
    if (!text.empty()) {
        HistEvent event;
        history(editor_->lines, &event, H_ENTER, text.c_str());
    }
    return {.text = std::move(text)};
}

LineInput LineReader::read_plain() {
    std::string text;
    int c = EOF;
    while ((c = std::fgetc(input_)) != EOF) {
        text.push_back(static_cast<char>(c));
        if (c == '\n') break;
    }
    if (interrupt_->raised()) {
        interrupt_->clear();
        std::clearerr(input_);
        return {.kind = LineInput::Kind::interrupted};
    }
    if (text.empty()) return {.kind = LineInput::Kind::end};
    drop_newline(text);
    return {.text = std::move(text)};
}

}  // namespace plimsoll
