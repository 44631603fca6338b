#include "tools/plan_view.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/planner/sample_plan.hpp"

namespace plimsoll::test {
namespace {

// Its bar was to be as wide as what the name left of the line: less than nothing.
TEST(PlanMap, HoldsADeviceNameLongerThanTheView) {
    Plan plan = sample_plan();
    plan.devices.front().facts.name = std::string(200, 'n');
    plan.devices.front().arena.name = plan.devices.front().facts.name;
    for (const bool colour : {false, true}) {
        const std::string map = plan_map(plan, View{.columns = 60, .colour = colour});
        EXPECT_NE(map.find(std::string(200, 'n')), std::string::npos);
        EXPECT_LT(map.size(), 4'000u);
    }
}

TEST(PlanMap, IsAsWideAsTheView) {
    for (const std::uint32_t columns : {60u, 80u, 132u}) {
        const std::string map = plan_map(sample_plan(), View{.columns = columns});
        const std::string first = map.substr(0, map.find('\n'));
        EXPECT_LE(first.size(), columns) << map;
        EXPECT_GT(first.size() + 3, columns) << map;
    }
}

// Wrapped lines are one sentence again.
std::string unwrapped(std::string text) {
    for (std::size_t at = text.find("\n  "); at != std::string::npos; at = text.find("\n  "))
        text.replace(at, 3, " ");
    return text;
}

TEST(PlanText, SaysWhetherItsSpeedsGoByMeasurement) {
    Plan plan = sample_plan();
    const View view{.columns = 100};
    EXPECT_NE(unwrapped(plan_text(plan, {}, view)).find("predicted, not measured"),
              std::string::npos);
    for (DevicePlan& device : plan.devices) {
        device.facts.decode_bandwidth_share = 0.7;
        device.facts.prefill_compute_share = 0.3;
    }
    EXPECT_NE(unwrapped(plan_text(plan, {}, view)).find("by rates measured on such a device"),
              std::string::npos);
}

}  // namespace
}  // namespace plimsoll::test
