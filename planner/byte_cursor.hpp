#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "planner/gguf.hpp"

namespace plimsoll {

/// Walks a file forward through a window of fixed size. Every step says whether it was inside the
/// limit; after a failed step the position is where the step began.
class ByteCursor {
public:
    /// Reads [first, limit) of `source`, which outlives the cursor.
    ByteCursor(const ByteSource& source, std::uint64_t first, std::uint64_t limit)
        : source_(source), limit_(limit), window_start_(first) {}

    [[nodiscard]] std::uint64_t position() const { return window_start_ + at_; }
    [[nodiscard]] std::uint64_t left() const { return limit_ - position(); }

    /// A little-endian number.
    template <class T>
    [[nodiscard]] bool read(T& out) {
        if (filled_ - at_ < sizeof(T) && !refill(sizeof(T))) return false;
        std::memcpy(&out, window_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return true;
    }

    /// The next `size` bytes, appended. Room is taken only after `size` was held against the bytes
    /// left.
    [[nodiscard]] bool append(std::uint64_t size_bytes, std::string& out) {
        if (size_bytes > left()) return false;
        out.reserve(out.size() + size_bytes);
        while (size_bytes > 0) {
            if (filled_ == at_ && !refill(1)) return false;
            const std::size_t piece = std::min<std::size_t>(size_bytes, filled_ - at_);
            out.append(reinterpret_cast<const char*>(window_.data()) + at_, piece);
            at_ += piece;
            size_bytes -= piece;
        }
        return true;
    }

    /// Steps over bytes without reading them.
    [[nodiscard]] bool skip(std::uint64_t size_bytes) {
        if (size_bytes > left()) return false;
        if (size_bytes <= filled_ - at_) {
            at_ += static_cast<std::size_t>(size_bytes);
        } else {
            window_start_ = position() + size_bytes;
            at_ = filled_ = 0;
        }
        return true;
    }

private:
    [[nodiscard]] bool refill(std::size_t needed) {
        if (needed > left()) return false;
        window_start_ = position();
        at_ = filled_ = 0;
        const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(kWindowBytes, left()));
        window_.resize(piece);
        if (!source_.read(window_start_, window_)) return false;
        filled_ = piece;
        return true;
    }

    static constexpr std::uint64_t kWindowBytes = 256 * 1024;

    const ByteSource& source_;
    std::uint64_t limit_;
    std::uint64_t window_start_;
    std::vector<std::byte> window_;
    std::size_t at_ = 0;      // of the next byte, in the window
    std::size_t filled_ = 0;  // bytes of the window that were read
};

}  // namespace plimsoll
