#pragma once

#include <string>
#include <utility>
#include <variant>

namespace plimsoll {

/// What went wrong, as far as the caller's next step (and the exit status) depends on it.
enum class ErrorKind {
    internal,     // a rule of ours was broken by data, not by a bug; exit 1
    usage,        // an option or argument; exit 2
    bad_file,     // a GGUF, YAML, plan or text file that cannot be what it claims; exit 2
    no_fit,       // does not fit and cannot be made to; exit 3
    not_strict,   // fits only degraded or spilled, and --strict was given; exit 4
    device_lost,  // the accelerator's context is dead; exit 5
    io,           // a read or write failed during a run; exit 6
    interrupted,  // the user pressed Ctrl+C; exit 130
};

/// One line for the user: what, how much, and the cure. No trailing newline or full stop.
struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string message;
};

/// The process exit status that belongs to an error kind.
[[nodiscard]] constexpr int exit_status(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::internal: return 1;
        case ErrorKind::usage:
        case ErrorKind::bad_file: return 2;
        case ErrorKind::no_fit: return 3;
        case ErrorKind::not_strict: return 4;
        case ErrorKind::device_lost: return 5;
        case ErrorKind::io: return 6;
        case ErrorKind::interrupted: return 130;
    }
    return 1;
}

/// A value or the reason there is none. Expected failures travel as values; bugs stop at `check`.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::move(value)) {}
    Result(Error error) : state_(std::move(error)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    [[nodiscard]] T& value() & { return std::get<0>(state_); }
    [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
    [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }

    [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

private:
    std::variant<T, Error> state_;
};

/// Success or an error, where success carries nothing.
using Status = Result<std::monostate>;
[[nodiscard]] inline Status ok_status() { return Status(std::monostate{}); }

}  // namespace plimsoll
