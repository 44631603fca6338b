#include "tools/run_plan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

Plan cpu_plan() {
    Plan plan{.experts_total = 96,
              .machine_name = "this machine",
              .verdict = Verdict::full,
              .grant = {.context_tokens = 8192, .chunk_tokens = 2048},
              .features = {{.name = "context", .requested = "8192", .granted = "8192"}},
              .predicted = {
                  .decode_tokens_per_s = 12, .prefill_tokens_per_s = 80, .bound = "memory of cpu"}};
    DevicePlan cpu{.facts = {.name = "cpu", .architecture = "cpu"},
                   .budget_bytes = 4 * kGiB,
                   .experts = 96,
                   .arena = {.name = "cpu", .planned_bytes = kGiB}};
    cpu.arena.by_class[static_cast<std::size_t>(RegionClass::kv)] = 36 * kMiB;
    plan.devices.push_back(cpu);
    return plan;
}

Plan spilled_plan() {
    Plan plan = cpu_plan();
    plan.verdict = Verdict::spilled;
    plan.devices[0].experts = 40;
    plan.features.push_back({.name = "experts",
                             .requested = "96",
                             .granted = "40",
                             .reason = "40 on the device, 56 on the host"});
    return plan;
}

TEST(PlanBrief, IsOneLineWhereEverythingWasGranted) {
    const std::vector<std::string> lines = plan_brief(cpu_plan());
    ASSERT_EQ(lines.size(), 1u);
    for (const char* part : {"full", "8,192", "2,048", "cpu", "1.00 GiB", "kv", "36.00 MiB"}) {
        EXPECT_NE(lines[0].find(part), std::string::npos) << part << " in " << lines[0];
    }
}

TEST(PlanBrief, NamesEveryDegradationAndItsPrice) {
    const std::vector<std::string> lines = plan_brief(spilled_plan());
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_NE(lines[1].find("experts: 40 on the device, 56 on the host"), std::string::npos);
    EXPECT_NE(lines[2].find("12 tokens/s"), std::string::npos) << lines[2];
    EXPECT_NE(lines[2].find("memory of cpu"), std::string::npos) << lines[2];
}

TEST(CheckRunnable, TakesAPlanForTheCpu) {
    EXPECT_TRUE(check_runnable(cpu_plan(), true));
    EXPECT_TRUE(check_runnable(spilled_plan(), false));
}

TEST(CheckRunnable, HoldsStrictToFull) {
    const Status refused = check_runnable(spilled_plan(), true);
    ASSERT_FALSE(refused);
    EXPECT_EQ(exit_status(refused.error().kind), 4);
}

TEST(CheckRunnable, RefusesWhatDoesNotFitWithTheCures) {
    Plan plan = cpu_plan();
    plan.refusal = Refusal{.pool = "cpu",
                           .short_bytes = 1522 * kMiB - 1,
                           .reason = "required: mtp",
                           .suggestions = {{.text = "let MTP go", .option = "drop --require mtp"}}};
    const Status refused = check_runnable(plan, false);
    ASSERT_FALSE(refused);
    EXPECT_EQ(exit_status(refused.error().kind), 3);
    EXPECT_EQ(refused.error().message,
              "cpu short by 1,522 MiB (required: mtp): let MTP go (drop --require mtp)");
}

TEST(CheckRunnable, RefusesWhatAGpuCannotExecuteYet) {
    Plan gpu = cpu_plan();
    gpu.devices[0].facts = {.name = "cuda:0", .architecture = "sm_90"};
    EXPECT_TRUE(check_runnable(gpu, false));
    const auto expect_refusal = [&](auto&& change, const char* part) {
        Plan plan = gpu;
        change(plan);
        const Status refused = check_runnable(plan, false);
        ASSERT_FALSE(refused) << part;
        EXPECT_EQ(exit_status(refused.error().kind), 2);
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
        EXPECT_NE(refused.error().message.find("use --device cpu"), std::string::npos);
    };
    expect_refusal([](Plan& plan) { plan.devices.push_back(plan.devices[0]); }, "2 devices");
    expect_refusal([](Plan& plan) { plan.host.experts = 7; }, "7 of");
    expect_refusal([](Plan& plan) { plan.grant.head_streamed = true; }, "streamed");
    expect_refusal([](Plan& plan) { plan.unified_memory = true; }, "host's");
}

TEST(CheckRunnable, RefusesExpertsThatWouldStayInTheFile) {
    Plan plan = spilled_plan();
    plan.nvme = {.bytes = 5 * kGiB, .experts = 56};
    const Status refused = check_runnable(plan, false);
    ASSERT_FALSE(refused);
    for (const char* part : {"56 of 96 experts", "5.00 GiB", "--vram", "--host-mem"}) {
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << part;
    }
}

}  // namespace
}  // namespace plimsoll
