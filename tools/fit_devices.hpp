#pragma once

#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "tools/plan_style.hpp"
#include "tools/planning.hpp"

namespace plimsoll {

/// The plan of one device file.
struct DevicePlanRow {
    std::string device;
    Plan plan;
};

/// A plan for every device file, smallest first, with the rest of the inputs as they are.
[[nodiscard]] Result<std::vector<DevicePlanRow>> plan_every_device(PlanInputs& inputs);

/// A table with one row a card.
[[nodiscard]] std::string device_rows_text(const PlanInputs& inputs,
                                           const std::vector<DevicePlanRow>& rows,
                                           const View& view);

/// An array of {"device": NAME, "plan": the object of `fit --json`}.
[[nodiscard]] std::string device_rows_json(const std::vector<DevicePlanRow>& rows);

}  // namespace plimsoll
