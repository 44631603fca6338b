#include <gtest/gtest.h>

#include <functional>

#include "planner/plan.hpp"
#include "tests/planner/sample_plan.hpp"

namespace plimsoll::test {
namespace {

/// One broken rule, and a part of how the validator should put it.
struct Fault {
    const char* expected;
    std::function<void(Plan&)> plant;
};

Arena& arena(Plan& plan) { return plan.devices[0].arena; }
Region& region(Plan& plan, std::size_t index) { return arena(plan).regions[index]; }

void expect_found(const std::vector<Fault>& faults, const std::function<Plan()>& make) {
    for (const Fault& fault : faults) {
        Plan plan = make();
        ASSERT_EQ(validate(plan), std::nullopt);
        fault.plant(plan);
        const std::optional<std::string> problem = validate(plan);
        ASSERT_TRUE(problem.has_value()) << "not found: " << fault.expected;
        EXPECT_NE(problem->find(fault.expected), std::string::npos)
            << *problem << " instead of " << fault.expected;
    }
}

TEST(ValidatePlan, AcceptsTheSamples) {
    EXPECT_EQ(validate(sample_plan()), std::nullopt);
    EXPECT_EQ(validate(refused_plan()), std::nullopt);
}

TEST(ValidatePlan, FindsFaultsOfRegions) {
    expect_found(
        {{"regions blk.0.dense and blk.1.dense overlap",
          [](Plan& plan) { region(plan, 1).offset_bytes -= 256; }},
         {"starts at 2049", [](Plan& plan) { region(plan, 1).offset_bytes += 1; }},
         {"has 2047 bytes", [](Plan& plan) { region(plan, 0).size_bytes -= 1; }},
         {"is empty", [](Plan& plan) { region(plan, 0).size_bytes = 0; }},
         {"ends beyond the arena", [](Plan& plan) { region(plan, 5).offset_bytes = ~0ull - 255; }},
         {"ends beyond the arena", [](Plan& plan) { region(plan, 5).offset_bytes += 256; }},
         {"is listed before",
          [](Plan& plan) { std::swap(arena(plan).regions[0], arena(plan).regions[1]); }},
         {"two regions are called blk.0.dense",
          [](Plan& plan) { region(plan, 1).name = "blk.0.dense"; }},
         {"5 slots of 1024 bytes are not 3072 bytes",
          [](Plan& plan) { region(plan, 2).slot_count = 5; }},
         {"slots of 1152921504606846977 bytes",
          [](Plan& plan) { region(plan, 2).slot_bytes = (1ull << 60) + 1; }},
         {"slots of 6148914691236517376 bytes are not",
          [](Plan& plan) { region(plan, 2).slot_bytes = 6148914691236517376ull; }},
         {"has a slot size but no slots", [](Plan& plan) { region(plan, 0).slot_bytes = 256; }},
         {"counts as kv", [](Plan& plan) { region(plan, 0).cls = RegionClass::kv; }}},
        sample_plan);
}

TEST(ValidatePlan, FindsSumsThatDoNotAddUp) {
    expect_found({{"class dense_weights says 4352 bytes, its regions have 4096",
                   [](Plan& plan) { arena(plan).by_class[0] += 256; }},
                  {"its classes add up to", [](Plan& plan) { arena(plan).planned_bytes += 256; }},
                  {"planned 10240 bytes of a budget of 8192",
                   [](Plan& plan) {
                       plan.devices[0].reserve_bytes = 53248;
                       plan.devices[0].budget_bytes = 8192;
                   }},
                  {"a budget of 53249", [](Plan& plan) { plan.devices[0].budget_bytes += 1; }},
                  {"61441 free bytes", [](Plan& plan) { plan.devices[0].free_bytes += 1; }},
                  {"of a budget of 1024", [](Plan& plan) { plan.host.budget_bytes = 1024; }},
                  {"available bytes", [](Plan& plan) { plan.host.budget_bytes = 10'001; }},
                  {"pinned", [](Plan& plan) { plan.host.pinned_bytes = 2049; }}},
                 sample_plan);
}

TEST(ValidatePlan, FindsFaultsOfTheWorkspace) {
    const auto buffer = [](Plan& plan, std::size_t index) -> WorkspaceBuffer& {
        return plan.devices[0].workspace[index];
    };
    expect_found({{"csa_layer.q and csa_layer.kv_rows overlap while both are live",
                   [&](Plan& plan) { buffer(plan, 2).offset_bytes = 768; }},
                  {"csa_layer.attn_in and csa_layer.q overlap while both are live",
                   [&](Plan& plan) { buffer(plan, 0).lifetime.last_op = 3; }},
                  {"is never alive",
                   [&](Plan& plan) {
                       buffer(plan, 0).lifetime = {2, 2};
                   }},
                  {"starts at 1", [&](Plan& plan) { buffer(plan, 0).offset_bytes = 1; }},
                  {"ends beyond the 1536 packed bytes",
                   [&](Plan& plan) { buffer(plan, 2).size_bytes = 513; }},
                  {"two workspace buffers are called csa_layer.q",
                   [&](Plan& plan) { buffer(plan, 0).name = "csa_layer.q"; }},
                  {"2048 packed workspace bytes in a region of 1536",
                   [](Plan& plan) { plan.devices[0].workspace_packed_bytes = 2048; }},
                  {"lower bound 1792 is above",
                   [](Plan& plan) { plan.devices[0].workspace_lower_bound_bytes = 1792; }}},
                 sample_plan);
}

TEST(ValidatePlan, FindsExpertsThatAreMissingOrPlacedTwice) {
    expect_found(
        {{"expert 1 of layer 1 is nowhere",
          [](Plan& plan) {
              plan.host.arena.regions[1].expert_first = 3;
              plan.nvme.layers[0].expert_first = 2;
          }},
         {"expert 0 of layer 1 is placed twice",
          [](Plan& plan) { plan.host.arena.regions[1].expert_first = 0; }},
         {"expert 3 of layer 1 is nowhere",
          [](Plan& plan) {
              plan.nvme.layers[0].expert_count = 1;
              plan.nvme.experts = 1;
          }},
         {"says 5 experts, its regions hold 4", [](Plan& plan) { plan.devices[0].experts = 5; }},
         {"host: says 1 experts", [](Plan& plan) { plan.host.experts = 1; }},
         {"nvme: says 3 experts", [](Plan& plan) { plan.nvme.experts = 3; }},
         {"is of layer 2", [](Plan& plan) { region(plan, 3).layer = 2; }},
         {"experts 3 to 5 of layer 1, which has 4",
          [](Plan& plan) { plan.nvme.layers[0].expert_first = 3; }},
         {"cannot be spread", [](Plan& plan) { plan.experts_total = 9; }}},
        sample_plan);
}

TEST(ValidatePlan, FindsFaultsOfTheWholePlan) {
    expect_found(
        {{"no device", [](Plan& plan) { plan.devices.clear(); }},
         {"two devices are called cuda:0",
          [](Plan& plan) { plan.devices.push_back(plan.devices[0]); }},
         {"does not follow on", [](Plan& plan) { plan.devices[0].layer_first = 1; }},
         {"1 of 2 layers run on a device", [](Plan& plan) { plan.devices[0].layer_last = 1; }},
         {"the verdict is full", [](Plan& plan) { plan.verdict = Verdict::full; }},
         {"without a refusal", [](Plan& plan) { plan.verdict = Verdict::no_fit; }},
         {"without a draft head", [](Plan& plan) { plan.mtp_model.reset(); }},
         {"0 drafts with mtp on", [](Plan& plan) { plan.grant.drafts = 0; }},
         {"no session", [](Plan& plan) { plan.grant.sessions = 0; }},
         {"context of no tokens", [](Plan& plan) { plan.grant.context_tokens = 0; }},
         {"chunk of no tokens", [](Plan& plan) { plan.grant.chunk_tokens = 0; }},
         {"packed rows need", [](Plan& plan) { plan.grant.rounding = false; }},
         {"3 dense layers are streamed", [](Plan& plan) { plan.grant.dense_streamed_layers = 3; }},
         {"feature context is listed twice",
          [](Plan& plan) { plan.features[1].name = "context"; }}},
        [] { return sample_plan(); });
}

TEST(ValidatePlan, FindsARefusalThatPlacesSomething) {
    expect_found(
        {{"short by nothing", [](Plan& plan) { plan.refusal->short_bytes = 0; }},
         {"with a refusal", [](Plan& plan) { plan.verdict = Verdict::spilled; }},
         {"cuda:0 has regions",
          [](Plan& plan) { plan.devices[0].arena = sample_plan().devices[0].arena; }},
         {"the host has regions", [](Plan& plan) { plan.host.arena = sample_plan().host.arena; }}},
        refused_plan);
}

TEST(IsWorse, ComparesInTheStatedOrder) {
    const Plan base = sample_plan();
    EXPECT_FALSE(is_worse(base, base));
    EXPECT_TRUE(is_worse(refused_plan(), base));
    EXPECT_FALSE(is_worse(base, refused_plan()));
    EXPECT_FALSE(is_worse(refused_plan(), refused_plan()));
    // Each entry improves one thing and makes the next one in the order worse: the first decides.
    const std::vector<std::function<void(Plan&, bool)>> order = {
        [](Plan& plan, bool up) { arena(plan).by_class[0] += up ? 256 : -256ull; },
        [](Plan& plan, bool up) { plan.grant.context_tokens += up ? 1 : -1ull; },
        [](Plan& plan, bool up) { plan.grant.chunk_tokens += up ? 1 : -1ull; },
        [](Plan& plan, bool up) { plan.devices[0].experts += up ? 1 : -1ull; },
        [](Plan& plan, bool up) { plan.grant.mtp = up; },
        [](Plan& plan, bool up) { plan.grant.embedding_on_host = !up; },
        [](Plan& plan, bool up) {
            arena(plan).by_class[static_cast<std::size_t>(RegionClass::fp16_cache)] +=
                up ? 256 : -256ull;
        }};
    for (std::size_t index = 0; index + 1 < order.size(); ++index) {
        Plan better = base, worse = base;
        order[index](better, true);
        order[index](worse, false);
        order[index + 1](better, false);
        order[index + 1](worse, true);
        EXPECT_TRUE(is_worse(worse, better)) << index;
        EXPECT_FALSE(is_worse(better, worse)) << index;
    }
}

}  // namespace
}  // namespace plimsoll::test
