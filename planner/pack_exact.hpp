#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/pack.hpp"

namespace plimsoll {

/// A buffer as the packers see it: the bytes it owns are its size rounded up to its alignment.
struct Block {
    std::uint64_t size_bytes = 0;       // a multiple of alignment_bytes
    std::uint64_t alignment_bytes = 1;  // power of two
    Lifetime lifetime;

    [[nodiscard]] bool alive_with(const Block& other) const {
        return lifetime.first_op < other.lifetime.last_op &&
               other.lifetime.first_op < lifetime.last_op;
    }
};

enum class ExactOutcome {
    found,     // offsets hold a packing within the capacity
    refuted,   // no packing within the capacity exists
    gave_up,   // the node limit came first
};

struct ExactResult {
    ExactOutcome outcome = ExactOutcome::gave_up;
    std::vector<std::uint64_t> offset_bytes;  // by block; empty unless found
    std::uint64_t node_count = 0;             // visited
};

/// Looks for a packing whose every block ends at or below `capacity_bytes`.
[[nodiscard]] ExactResult pack_within(std::span<const Block> blocks, std::uint64_t capacity_bytes,
                                      std::uint64_t node_count_max);

}  // namespace plimsoll
