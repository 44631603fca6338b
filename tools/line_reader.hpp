#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "tools/interrupt.hpp"

namespace plimsoll {

struct LineInput {
    enum class Kind : unsigned char {
        line,         // `text`, without the newline at its end
        interrupted,  // Ctrl+C: what was typed is dropped
        end,          // Ctrl+D on an empty line, or the end of the input
    };
    Kind kind = Kind::line;
    std::string text;
};

/// Reads what a person types: a line with editing and the history of this session on a terminal,
/// plain lines otherwise. Lines pasted together come back as one text with newlines.
class LineReader {
public:
    /// `input` is read, `output` gets the prompt and the echo; both outlive the reader. Sets the
    /// locale's character encoding, which line editing needs.
    LineReader(std::FILE* input, std::FILE* output, InterruptFlag& interrupt);
    ~LineReader();
    LineReader(LineReader&&) noexcept;

    /// Shows `prompt` (on a terminal only) and waits. At an interrupt the flag is cleared and a new
    /// line begun.
    [[nodiscard]] LineInput read(const std::string& prompt);

private:
    struct Editor;

    [[nodiscard]] LineInput read_plain();

    std::FILE* input_;
    std::FILE* output_;
    InterruptFlag* interrupt_;
    std::unique_ptr<Editor> editor_;  // null where the input is no terminal
};

}  // namespace plimsoll
