#include "tools/bench_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace plimsoll {

Result<std::vector<std::uint64_t>> frontiers_of(const BenchWalk& walk) {
    const auto refuse = [](std::string message) {
        return Error{ErrorKind::usage, std::move(message)};
    };
    if (walk.step_mul && walk.step_incr_tokens)
        return refuse("--step-mul and --step-incr are two ways to go on: give one");
    if (walk.step_mul && !(*walk.step_mul > 1 && std::isfinite(*walk.step_mul)))
        return refuse("--step-mul must be above 1");
    if (walk.ctx_start_tokens > walk.ctx_max_tokens)
        return refuse(fmt::format("--ctx-start {} lies behind --ctx-max {}", walk.ctx_start_tokens,
                                  walk.ctx_max_tokens));
    std::vector<std::uint64_t> frontiers;
    for (std::uint64_t at = walk.ctx_start_tokens; at < walk.ctx_max_tokens;) {
        frontiers.push_back(at);
        const double wanted =
            walk.step_incr_tokens
                ? static_cast<double>(at) + static_cast<double>(*walk.step_incr_tokens)
                : std::floor(static_cast<double>(at) * walk.step_mul.value_or(2));
        // A small factor of a small context still goes on. What is generated lies in between.
        const auto next =
            static_cast<std::uint64_t>(std::min(wanted, static_cast<double>(walk.ctx_max_tokens)));
        at = std::max({next, at + 1, at + walk.gen_tokens});
    }
    if (!frontiers.empty() && frontiers.back() + walk.gen_tokens > walk.ctx_max_tokens)
        frontiers.pop_back();
    frontiers.push_back(walk.ctx_max_tokens);
    return frontiers;
}

std::uint64_t context_tokens_of(const BenchWalk& walk) {
    return walk.ctx_max_tokens + walk.gen_tokens;
}

}  // namespace plimsoll
