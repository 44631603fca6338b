#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace plimsoll::offload {

/// A system call that failed, and on which bytes.
struct IoError {
    std::string action;              // "open", "read", "io_uring_queue_init"
    std::string path;                // of the file or folder
    int error_number = 0;            // errno; 0 where the file ended too early
    std::uint64_t offset_bytes = 0;  // of the read that failed
    std::uint64_t size_bytes = 0;    // of the read that failed; 0 where it was no read
};

/// One line without a full stop: "read of 4096 bytes at 8192 of /models/x.gguf: Input/output
/// error".
[[nodiscard]] inline std::string describe(const IoError& error) {
    const std::string reason =
        error.error_number != 0 ? std::strerror(error.error_number) : "the file ends before that";
    if (error.size_bytes == 0) return error.action + " " + error.path + ": " + reason;
    return error.action + " of " + std::to_string(error.size_bytes) + " bytes at " +
           std::to_string(error.offset_bytes) + " of " + error.path + ": " + reason;
}

/// A value or the call that failed. Expected failures travel as values, as in the planner, with
/// what the operating system said.
template <class T>
class [[nodiscard]] IoResult {
public:
    IoResult(T value) : state_(std::move(value)) {}
    IoResult(IoError error) : state_(std::move(error)) {}

    [[nodiscard]] bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& operator*() { return std::get<0>(state_); }
    const T& operator*() const { return std::get<0>(state_); }
    T* operator->() { return &std::get<0>(state_); }
    const T* operator->() const { return &std::get<0>(state_); }

    [[nodiscard]] const IoError& error() const { return std::get<1>(state_); }

private:
    std::variant<T, IoError> state_;
};

}  // namespace plimsoll::offload
