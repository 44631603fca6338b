#include "tools/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kBarColumnsMax = 30;
constexpr std::size_t kBarColumnsMin = 8;
constexpr auto kDrawInterval = std::chrono::milliseconds(100);

/// Before this much time the rate is noise.
constexpr double kRateAfterSeconds = 0.5;

std::string amount(std::uint64_t count, ProgressUnit unit) {
    return unit == ProgressUnit::bytes ? format_bytes(count) : format_count(count);
}

std::string clock_time(double seconds) {
    const auto whole = static_cast<std::uint64_t>(std::min(std::ceil(seconds), 3600.0 * 999));
    if (whole >= 3600) {
        return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    }
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string progress_text(const ProgressState& state, std::uint32_t columns) {
    const std::uint64_t done = std::min(state.done, state.total);
    const double share =
        state.total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(state.total);
    const bool is_bytes = state.unit == ProgressUnit::bytes;

    std::vector<std::string> right = {
        fmt::format("{:.0f} %", std::floor(share * 100)),
        fmt::format("{} of {}{}", amount(done, state.unit), amount(state.total, state.unit),
                    is_bytes ? "" : " tokens")};
    if (state.elapsed_seconds >= kRateAfterSeconds && done > 0) {
        const double per_second = static_cast<double>(done) / state.elapsed_seconds;
        const auto rate = static_cast<std::uint64_t>(per_second);
        right.push_back(is_bytes ? format_bytes(rate) + "/s" : format_count(rate) + " tokens/s");
        right.push_back(clock_time(static_cast<double>(state.total - done) / per_second) + " left");
    }

    // A full last column would wrap on some terminals.
    const std::size_t room = columns == 0 ? 0 : columns - 1;
    for (;; right.pop_back()) {
        std::string tail;
        for (const std::string& part : right) tail += "  " + part;
        const std::size_t fixed = display_columns(state.label) + display_columns(tail);
        const std::size_t frame = std::string_view("  []").size();
        if (room >= fixed + frame + kBarColumnsMin) {
            const std::size_t bar = std::min(kBarColumnsMax, room - fixed - frame);
            const auto full = static_cast<std::size_t>(share * static_cast<double>(bar));
            return fmt::format("{}  [{}{}]{}", state.label, std::string(full, '#'),
                               std::string(bar - full, ' '), tail);
        }
        if (room >= fixed && right.size() <= 1) return state.label + tail;
        if (right.empty()) return std::string();
    }
}

ProgressLine::ProgressLine(std::FILE* stream, const Terminal& terminal, std::string label,
                           ProgressUnit unit, std::uint64_t total)
    : stream_(stream), terminal_(terminal) {
    state_.label = std::move(label);
    state_.unit = unit;
    state_.total = total;
}

ProgressLine::~ProgressLine() { finish(); }

void ProgressLine::update(std::uint64_t done) {
    if (!terminal_.is_terminal || finished_) return;
    const Clock::time_point now = Clock::now();
    if (now < next_draw_) return;
    next_draw_ = now + kDrawInterval;
    state_.done = done;
    state_.elapsed_seconds = std::chrono::duration<double>(now - start_).count();
    // \x1b[K clears what a longer line left behind.
    fmt::print(stream_, "\r{}\x1b[K", progress_text(state_, terminal_.columns));
    std::fflush(stream_);
    drawn_ = true;
}

void ProgressLine::finish() {
    if (drawn_ && !finished_) {
        fmt::print(stream_, "\r\x1b[K");
        std::fflush(stream_);
    }
    finished_ = true;
}

}  // namespace plimsoll
