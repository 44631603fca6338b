#include "tests/fuzz/planning_check.hpp"

#include "planner/check.hpp"
#include "planner/plan.hpp"
#include "planner/units.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace plimsoll::test {

void check_planning(const Model& model) {
    constexpr double kMemoryBytesPerSecond = 40e9;
    MachineFacts machine = cpu_machine(256 * kMiB, kMemoryBytesPerSecond);
    machine.host_available_bytes = kGiB;
    const Result<Plan> plan = make_plan(model, nullptr, machine, default_request());
    if (!plan) return check_message(plan.error().message, "");
    const std::optional<std::string> broken = validate(*plan);
    PLIMSOLL_CHECK(!broken, *broken);
}

}  // namespace plimsoll::test
