#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "tools/terminal.hpp"

namespace plimsoll {

/// What a progress line counts.
enum class ProgressUnit : std::uint8_t { bytes, tokens };

struct ProgressState {
    std::string label;  // "loading"
    ProgressUnit unit = ProgressUnit::bytes;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    double elapsed_seconds = 0;
};

/// `loading  [######      ] 48 %  38.9 of 80.8 GiB  2.1 GiB/s  0:20 left`, in fewer than `columns`
/// columns: the bar shrinks first, then what is on the right goes.
[[nodiscard]] std::string progress_text(const ProgressState& state, std::uint32_t columns);

/// A line on a terminal that is drawn over itself and gone at the end. Does nothing where the
/// stream is no terminal.
class ProgressLine {
public:
    /// `stream` outlives the line.
    ProgressLine(std::FILE* stream, const Terminal& terminal, std::string label, ProgressUnit unit,
                 std::uint64_t total);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// So much is done in all. Draws at most ten times a second.
    void update(std::uint64_t done);

    /// Erases the line; later updates draw nothing.
    void finish();

private:
    using Clock = std::chrono::steady_clock;

    std::FILE* stream_;
    Terminal terminal_;
    ProgressState state_;
    Clock::time_point start_ = Clock::now();
    Clock::time_point next_draw_ = start_;
    bool drawn_ = false;
    bool finished_ = false;
};

}  // namespace plimsoll
