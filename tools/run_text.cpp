#include "tools/run_text.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace plimsoll {

TextOutput::TextOutput(std::FILE* stream, const Tokenizer& tokenizer, StopStrings stops)
    : stream_(stream), tokenizer_(&tokenizer), stops_(std::move(stops)) {}

Result<bool> TextOutput::push(TokenId token) {
    if (token == tokenizer_->special().eos) return false;
    std::string characters;
    characters_.push(tokenizer_->bytes(token), characters);
    std::string certain;
    const bool stopped = stops_.push(characters, certain);
    if (const Status written = write(certain); !written) return written.error();
    return stopped;
}

Status TextOutput::finish() {
    std::string characters;
    characters_.finish(characters);
    std::string certain;
    if (!stops_.push(characters, certain)) stops_.finish(certain);
    return write(certain);
}

Status TextOutput::write(const std::string& piece) {
    if (piece.empty()) return ok_status();
    text_ += piece;
    const bool whole = std::fwrite(piece.data(), 1, piece.size(), stream_) == piece.size();
    if (!whole || std::fflush(stream_) != 0) {
        return Error{ErrorKind::io,
                     std::string("the generated text cannot be written: ") + std::strerror(errno)};
    }
    return ok_status();
}

}  // namespace plimsoll
