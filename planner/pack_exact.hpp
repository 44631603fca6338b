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

}  // namespace plimsoll
