#pragma once

#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "tools/plan_style.hpp"

namespace plimsoll {

/// A part of a tier as tables and maps show it.
struct TierPart {
    const ClassStyle* style = nullptr;
    std::uint64_t size_bytes = 0;
};

/// A tier for people: every byte of it is in exactly one part.
struct Tier {
    std::string name;                     // "cuda:0", "host", "file"
    std::vector<std::uint64_t> by_class;  // [kRegionClassCount]
    std::uint64_t planned_bytes = 0;
    std::uint64_t unused_bytes = 0;  // of the budget
    std::uint64_t budget_bytes = 0;
    std::uint64_t reserve_bytes = 0;  // on the host: what planning leaves to the system
    std::uint64_t overhead_bytes = 0;
    std::uint64_t elsewhere_bytes = 0;  // reported by the driver, and not free to us
    std::uint64_t total_bytes = 0;
    bool is_file = false;  // experts stay where they are: there is nothing to fill
};

/// The devices, the host where it may hold something, and the file where experts stay in it.
[[nodiscard]] std::vector<Tier> tiers_of(const Plan& plan);

/// Parts in the order of a map, none of them empty.
[[nodiscard]] std::vector<TierPart> parts_of(const Tier& tier);

/// MiB and share of the budget by class and tier, with what is planned, unused and not ours below.
[[nodiscard]] std::string class_table(const std::vector<Tier>& tiers, const View& view);

/// A bar for each tier that has an end, each as long as the view is wide, and a legend.
[[nodiscard]] std::string tier_map(const std::vector<Tier>& tiers, const View& view);

}  // namespace plimsoll
