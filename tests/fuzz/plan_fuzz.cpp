// Plan files, and everything that shows one that was accepted.

#include "planner/check.hpp"
#include "planner/plan.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/planner/sample_plan.hpp"
#include "tools/plan_diff.hpp"
#include "tools/plan_svg.hpp"
#include "tools/plan_view.hpp"

namespace plimsoll::test {
namespace {

constexpr const char* kSource = "fuzz.yaml";

/// Everything but the hash, without which a changed plan is read all the same.
std::string unsealed(const Plan& plan) {
    const std::string text = plan_to_yaml(plan);
    return text.substr(0, text.rfind("plan_hash"));
}

void show(const Plan& plan) {
    const View view{.columns = 60, .unicode = false};
    (void)plan_to_json(plan);
    (void)plan_text(plan, {}, view);
    (void)plan_map(plan, view);
    (void)plan_svg(plan);
    (void)plan_diff(sample_plan(), plan, view);
}

}  // namespace

bool fuzz_one(std::string_view input) {
    const Result<Plan> plan = plan_from_yaml(std::string(input), kSource);
    if (!plan) {
        check_message(plan.error().message, "fuzz.yaml:");
        return false;
    }
    const std::string text = plan_to_yaml(*plan);
    const Result<Plan> again = plan_from_yaml(text, kSource);
    PLIMSOLL_CHECK(again.ok(), again.error().message);
    PLIMSOLL_CHECK(plan_to_yaml(*again) == text, text);
    // Who loads a plan refuses one that breaks a rule, so that nothing shows it.
    if (validate(*plan)) return false;
    show(*plan);
    return true;
}

std::vector<std::string> seed_inputs() {
    return {plan_to_yaml(sample_plan()), unsealed(sample_plan()), unsealed(refused_plan())};
}

}  // namespace plimsoll::test
