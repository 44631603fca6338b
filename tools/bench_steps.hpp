#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

inline constexpr double kStepMulDefault = 2;

/// Where a bench stops to generate.
struct BenchWalk {
    std::uint64_t ctx_start_tokens = 2'048;
    std::uint64_t ctx_max_tokens = 2'048;
    std::optional<double> step_mul;                 // the next context is so many times as far
    std::optional<std::uint64_t> step_incr_tokens;  // or so many tokens on
    std::uint64_t gen_tokens = 128;                 // may be 0
};

/// The contexts at which to generate, ascending, ctx_max_tokens the last. Steps double where
/// neither way is given. Refuses a walk that does not move, that starts behind its end, or whose
/// generated tokens would reach the next context, in a line that names the option.
[[nodiscard]] Result<std::vector<std::uint64_t>> contexts_of(const BenchWalk& walk);

/// Context that the walk fills: the last one and what is generated there.
[[nodiscard]] std::uint64_t walked_tokens(const BenchWalk& walk);

}  // namespace plimsoll
