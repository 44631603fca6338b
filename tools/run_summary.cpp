#include "tools/run_summary.hpp"

#include <fmt/format.h>

#include "planner/units.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

std::string tokens_text(std::uint64_t count) {
    return fmt::format("{} token{}", format_count(count), count == 1 ? "" : "s");
}

/// Measured beside predicted; nothing where nothing was measured.
std::string rate_text(std::uint64_t tokens, double seconds, double predicted_tokens_per_s) {
    if (tokens == 0 || seconds <= 0) return "";
    return fmt::format(", {} tokens/s (predicted {})",
                       format_rate(static_cast<double>(tokens) / seconds),
                       format_rate(predicted_tokens_per_s));
}

}  // namespace

std::string turn_summary(const TurnTally& tally, const Prediction& predicted) {
    std::string out = fmt::format(
        "prompt {}{}", tokens_text(tally.fed_tokens),
        rate_text(tally.fed_tokens, tally.prefill_seconds, predicted.prefill_tokens_per_s));
    if (tally.generated_tokens != 0) {
        out += fmt::format(
            "; generated {}{}", tokens_text(tally.generated_tokens),
            rate_text(tally.decoded_tokens, tally.decode_seconds, predicted.decode_tokens_per_s));
    }
    if (tally.stop) out += fmt::format(", {}", name_of(*tally.stop));
    if (tally.interrupted) out += ", interrupted";
    if (tally.experts) {
        out += fmt::format("; experts {} hits, {} misses, {} copied",
                           format_count(tally.experts->hits), format_count(tally.experts->misses),
                           format_bytes(tally.experts->copied_bytes));
    }
    return out;
}

}  // namespace plimsoll
