#include "tools/bench_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// More rows than anybody reads.
constexpr std::size_t kContextsMax = 10'000;

Error refuse(std::string message) { return {ErrorKind::usage, std::move(message)}; }

Status check_options(const BenchWalk& walk) {
    if (walk.step_mul && walk.step_incr_tokens)
        return refuse("--step-mul and --step-incr are two ways to go on: give one");
    if (walk.step_mul && !(*walk.step_mul > 1 && std::isfinite(*walk.step_mul)))
        return refuse(fmt::format("--step-mul {} must be above 1", *walk.step_mul));
    if (walk.ctx_start_tokens > walk.ctx_max_tokens)
        return refuse(fmt::format("--ctx-start {} lies behind --ctx-max {}", walk.ctx_start_tokens,
                                  walk.ctx_max_tokens));
    return ok_status();
}

/// The context behind one, not above the last.
std::uint64_t next_context(const BenchWalk& walk, std::uint64_t context_tokens) {
    const auto at = static_cast<double>(context_tokens);
    const double next = walk.step_incr_tokens
                            ? at + static_cast<double>(*walk.step_incr_tokens)
                            : std::floor(at * walk.step_mul.value_or(kStepMulDefault));
    return static_cast<std::uint64_t>(std::min(next, static_cast<double>(walk.ctx_max_tokens)));
}

}  // namespace

Result<std::vector<std::uint64_t>> contexts_of(const BenchWalk& walk) {
    if (const Status checked = check_options(walk); !checked) return checked.error();
    std::vector<std::uint64_t> contexts = {walk.ctx_start_tokens};
    while (contexts.back() < walk.ctx_max_tokens) {
        const std::uint64_t here = contexts.back(), next = next_context(walk, here);
        if (next <= here + walk.gen_tokens)
            return refuse(fmt::format(
                "contexts {} and {} are {} apart, and the {} tokens generated at the first count "
                "as context: take a larger step, another --ctx-max or fewer --gen-tokens",
                format_count(here), format_count(next), format_count(next - here),
                format_count(walk.gen_tokens)));
        if (contexts.size() == kContextsMax)
            return refuse(fmt::format("the walk has more than {} contexts: take a larger step",
                                      format_count(kContextsMax)));
        contexts.push_back(next);
    }
    return contexts;
}

std::uint64_t walked_tokens(const BenchWalk& walk) { return walk.ctx_max_tokens + walk.gen_tokens; }

}  // namespace plimsoll
