#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "planner/plan.hpp"
#include "runtime/stop.hpp"

namespace plimsoll {

/// How the experts of a run were had, where not all of them stay on the device.
struct ExpertTraffic {
    std::uint64_t hits = 0;    // found in a slot
    std::uint64_t misses = 0;  // copied into one
    std::uint64_t copied_bytes = 0;
};

/// What a turn did and how long it took.
struct TurnTally {
    std::uint64_t fed_tokens = 0;  // by prefill
    double prefill_seconds = 0;
    std::uint64_t generated_tokens = 0;
    std::uint64_t decoded_tokens = 0;  // fed one by one: those after the first generated
    double decode_seconds = 0;
    std::optional<StopReason> stop;  // none where it was interrupted, or nothing was generated
    bool interrupted = false;
    std::optional<ExpertTraffic> experts;
};

/// `prompt 28 tokens, 512 tokens/s (predicted 640); generated 128 tokens, 12.3 tokens/s (predicted
/// 14.1), token limit`, and the experts where there is traffic.
[[nodiscard]] std::string turn_summary(const TurnTally& tally, const Prediction& predicted);

}  // namespace plimsoll
