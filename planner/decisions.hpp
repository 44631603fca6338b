#pragma once

#include <string>
#include <vector>

#include "planner/ladder.hpp"

namespace plimsoll {

/// The decision log of a plan in words: one feature a row, from the finished plan and what was
/// asked.
[[nodiscard]] std::vector<Feature> describe_features(const Footprint& footprint,
                                                     const Request& request,
                                                     const Division& division, const Plan& plan);

/// Settings that somebody gave, one note each: "--vram 23,700 MiB: free memory of every device".
[[nodiscard]] std::vector<std::string> describe_settings(const Request& request,
                                                         const MachineFacts& machine);

/// What a plan that is not full lacks, and by how much: "all experts on cuda:0 need 1,204 MiB
/// more".
[[nodiscard]] std::vector<std::string> describe_gaps(const Footprint& footprint,
                                                     const Division& division, const Plan& plan);

}  // namespace plimsoll
