#pragma once

#include <cstdint>
#include <vector>

#include "planner/pack_timeline.hpp"

namespace plimsoll {

enum class ExactOutcome {
    found,    // the offsets hold a packing within the capacity
    refuted,  // there is none
    gave_up,  // the node limit came first
};

struct ExactResult {
    ExactOutcome outcome = ExactOutcome::gave_up;
    std::vector<std::uint64_t> offset_bytes;  // by item; empty unless found
    std::uint64_t node_count = 0;             // visited, at most the limit
};

/// Looks for a packing in which every item ends at or below `capacity_bytes`. Complete: given
/// enough nodes it finds one or shows that there is none. Deterministic.
[[nodiscard]] ExactResult pack_within(const Timeline& timeline, std::uint64_t capacity_bytes,
                                      std::uint64_t node_count_max);

}  // namespace plimsoll
