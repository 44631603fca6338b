#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/footprint.hpp"
#include "planner/request.hpp"

namespace plimsoll {

/// What may be planned, by tier.
struct Budgets {
    std::vector<std::uint64_t> device_bytes;
    /// Signed: negative where overhead and reserve alone exceed what there is, so that a refusal's
    /// shortage falls by exactly what is added.
    std::vector<std::int64_t> device_room_bytes;
    std::uint64_t host_bytes = 0;
    bool nvme = true;
};

struct Climb {
    bool fits = false;
    Division division;  // the best that fits, or the floor that does not
    std::string pool;   // on a misfit: the pool that is short most
    std::uint64_t short_bytes = 0;
    std::uint64_t floor_bytes = 0;  // the pool's bytes at the floor
};

/// The best division: starts from the floor, where everything that may be given up is, and takes
/// features back in the reverse of the ladder's order, each as far as it fits. So the outcome is
/// the lexicographic best over that order, and more memory never gives a worse one.
///
///     give up first                                                    give up last
///     fp16_cache  prefill_chunk  embedding  mtp  experts  …  context  output_head  dense_layers
///     take back last                                                  take back first
///
/// `request` has passed check_request. Pure.
[[nodiscard]] Climb climb(const Footprint& footprint, const Request& request,
                          const Budgets& budgets);

/// What `is_worse` compares, best first; larger is better.
using Rank = std::array<std::uint64_t, 8>;
[[nodiscard]] Rank rank_of(const Footprint& footprint, const Division& division);

}  // namespace plimsoll
