#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

/// Where a bench stops to generate.
struct BenchWalk {
    std::uint64_t ctx_start_tokens = 2'048;
    std::uint64_t ctx_max_tokens = 2'048;
    std::optional<double> step_mul;                 // the next frontier is so many times as far
    std::optional<std::uint64_t> step_incr_tokens;  // or so many tokens on
    std::uint64_t gen_tokens = 128;
};

/// The contexts at which to generate, ascending, ctx_max_tokens the last. Steps double where
/// neither way is given. Refuses a walk that does not move or starts behind its end, naming the
/// option.
[[nodiscard]] Result<std::vector<std::uint64_t>> frontiers_of(const BenchWalk& walk);

/// Context that the walk needs: the last frontier and what is generated there.
[[nodiscard]] std::uint64_t context_tokens_of(const BenchWalk& walk);

}  // namespace plimsoll
