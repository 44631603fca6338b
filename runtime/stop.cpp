#include "runtime/stop.hpp"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::size_t kStopBytesMax = std::size_t{64} << 10;

std::vector<std::uint32_t> borders_of(std::string_view text) {
    std::vector<std::uint32_t> border(text.size() + 1, 0);
    std::uint32_t length = 0;
    for (std::size_t i = 1; i < text.size(); ++i) {
        while (length != 0 && text[i] != text[length]) length = border[length];
        if (text[i] == text[length]) ++length;
        border[i + 1] = length;
    }
    return border;
}

}  // namespace

std::string_view name_of(StopReason reason) {
    switch (reason) {
        case StopReason::eos: return "end of turn";
        case StopReason::max_tokens: return "token limit";
        case StopReason::context_full: return "context full";
        case StopReason::stop_string: return "stop string";
    }
    return "";
}

std::optional<StopReason> stop_after(const StopLimits& limits, TokenId token,
                                     std::uint64_t generated_tokens,
                                     std::uint64_t position_tokens) {
    if (token == limits.eos) return StopReason::eos;
    if (limits.max_tokens != 0 && generated_tokens >= limits.max_tokens) {
        return StopReason::max_tokens;
    }
    if (position_tokens >= limits.context_tokens) return StopReason::context_full;
    return std::nullopt;
}

Result<StopStrings> StopStrings::create(std::vector<std::string> strings) {
    StopStrings out;
    std::size_t size_bytes = 0;
    for (std::string& text : strings) {
        if (text.empty()) return Error{ErrorKind::usage, "a stop string is empty"};
        size_bytes += text.size();
        if (size_bytes > kStopBytesMax) {
            return Error{ErrorKind::usage, "stop strings of more than 64 KiB in all"};
        }
        std::vector<std::uint32_t> border = borders_of(text);
        out.patterns_.push_back({.text = std::move(text), .border = std::move(border)});
    }
    return out;
}

bool StopStrings::push(std::string_view text, std::string& out) {
    for (std::size_t i = 0; i < text.size() && !stopped_; ++i) {
        held_.push_back(text[i]);
        std::size_t longest_match = 0;  // of the strings complete here
        std::size_t longest_prefix = 0;
        for (Pattern& pattern : patterns_) {
            std::uint32_t& matched = pattern.matched;
            while (matched != 0 && pattern.text[matched] != text[i]) {
                matched = pattern.border[matched];
            }
            if (pattern.text[matched] == text[i]) ++matched;
            longest_prefix = std::max<std::size_t>(longest_prefix, matched);
            if (matched == pattern.text.size()) {
                longest_match = std::max<std::size_t>(longest_match, matched);
            }
        }
        stopped_ = longest_match != 0;
        // Text in which no string can begin any more is certain. As it goes at each byte, `held_`
        // is never longer than a stop string.
        const std::size_t certain = held_.size() - (stopped_ ? longest_match : longest_prefix);
        out.append(held_, 0, certain);
        held_.erase(0, stopped_ ? std::string::npos : certain);
    }
    return stopped_;
}

void StopStrings::finish(std::string& out) {
    out += held_;
    held_.clear();
}

}  // namespace plimsoll
