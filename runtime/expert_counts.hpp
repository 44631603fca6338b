#pragma once

#include <cstdint>

namespace plimsoll {

/// How the main model's experts were had: hits + misses is tokens * layers * experts used.
struct ExpertCounts {
    std::uint64_t hits = 0;    // on the device when asked for
    std::uint64_t misses = 0;  // copied to it first
    std::uint64_t copied_bytes = 0;
};

}  // namespace plimsoll
