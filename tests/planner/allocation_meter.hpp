#pragma once

#include <cstdint>

namespace plimsoll::test {

/// What operator new has handed out while it was watched. This program replaces the operators.
struct Allocations {
    std::uint64_t count = 0;
    std::uint64_t total_bytes = 0;
    std::uint64_t largest_bytes = 0;
};

void watch_allocations();
[[nodiscard]] Allocations stop_watching_allocations();

}  // namespace plimsoll::test
