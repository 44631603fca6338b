#pragma once

#include <span>
#include <string>

#include "planner/plan.hpp"
#include "tools/plan_style.hpp"

namespace plimsoll {

/// Everything a person wants to know of a plan or a refusal: verdict, table, map, decisions, speed,
/// notes, and what would change the outcome. Ends with a newline; no line is wider than the view.
/// `alternatives` are changes that lead to another plan, each already tried.
[[nodiscard]] std::string plan_text(const Plan& plan, std::span<const Suggestion> alternatives,
                                    const View& view);

/// The memory map alone.
[[nodiscard]] std::string plan_map(const Plan& plan, const View& view);

/// The first line: model, machine, verdict.
[[nodiscard]] std::string plan_title(const Plan& plan);

/// A feature's value as people write it: "131,072 tokens", "on", "10.58 GiB", "host".
[[nodiscard]] std::string feature_value(const Feature& feature, const std::string& value);

}  // namespace plimsoll
