#include <gtest/gtest.h>

#include <random>

#include "planner/plan.hpp"
#include "planner/plan_names.hpp"
#include "tests/planner/sample_plan.hpp"

namespace plimsoll::test {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

/// The plan's text without its hash, so that an edit reaches the check it is meant for.
std::string unsealed(const Plan& plan) {
    const std::string text = plan_to_yaml(plan);
    return text.substr(0, text.rfind("plan_hash"));
}

std::string problem_of(const std::string& text) {
    const Result<Plan> plan = plan_from_yaml(text, "p.yaml");
    return plan ? "" : plan.error().message;
}

TEST(PlanYaml, ReadsBackAsTheSamePlanAndTheSameBytes) {
    Plan measured = sample_plan();
    measured.devices[0].facts.decode_bandwidth_share = 2.0 / 3.0;
    measured.devices[0].facts.prefill_compute_share = 0.25;
    for (const Plan& plan : {sample_plan(), refused_plan(), measured, Plan{}}) {
        const std::string text = plan_to_yaml(plan);
        const Result<Plan> back = plan_from_yaml(text, "p.yaml");
        ASSERT_TRUE(back.ok()) << back.error().message << "\n" << text;
        EXPECT_EQ(*back, plan);
        EXPECT_EQ(plan_to_yaml(*back), text);
    }
}

TEST(PlanYaml, HashTellsPlansApartAndIsTheOneInTheFile) {
    Plan plan = sample_plan();
    const std::uint64_t hash = plan_hash(plan);
    EXPECT_EQ(plan_hash(sample_plan()), hash);
    char line[64];
    std::snprintf(line, sizeof line, "plan_hash: \"0x%016llx\"\n",
                  static_cast<unsigned long long>(hash));
    EXPECT_TRUE(plan_to_yaml(plan).ends_with(line)) << line;
    plan.devices[0].workspace[1].offset_bytes += 256;
    EXPECT_NE(plan_hash(plan), hash);
}

TEST(PlanYaml, RefusesAPlanThatWasEditedAfterItWasSaved) {
    const std::string edited =
        replaced(plan_to_yaml(sample_plan()), "context_tokens: 4096", "context_tokens: 8192");
    EXPECT_NE(problem_of(edited).find("was changed after it was saved"), std::string::npos)
        << problem_of(edited);
}

TEST(PlanYaml, NamesTheLineOfEachFault) {
    const std::string text = unsealed(sample_plan());
    ASSERT_EQ(problem_of(text), "");
    const struct {
        const char* from;
        const char* to;
        const char* expected;
    } rows[] = {
        {"plan_version: 1", "plan_version: 2", "p.yaml:3: plan.plan_version is '2'"},
        {"verdict: spilled", "verdict: fine", "must be one of full, degraded, spilled, no_fit"},
        {"n_layers: 2", "n_layers: -2", "n_layers is '-2'"},
        {"n_layers: 2", "n_layers: 99999999", "n_layers is '99999999'"},
        {"n_layers: 2", "n_layer: 2", "plan lacks 'n_layers'"},
        {"n_layers: 2\n", "n_layers: 2\nextra: 1\n", "p.yaml:8: unknown key 'extra'"},
        {"kind: layer_dense", "kind: layer", "regions[0].kind is 'layer'"},
        {"class: dense_weights", "class: dense", "regions[0].class is 'dense'"},
        {"slot_count: 3", "slot_count: 4", "4 slots of 1024 bytes are not 3072 bytes"},
        {"slot_bytes: 1024", "slot_bytes: 9223372036854775807", "are not 3072 bytes"},
        {"slot_count: 3", "slot_count: 4294967297", "slot_count is '4294967297'"},
        {"offset_bytes: 0,", "offset_bytes: 9223372036854775807,", "ends beyond 2^63"},
        {"offset_bytes: 0,", "offset_bytes: 18446744073709551616,", "offset_bytes is"},
        {"offset_bytes: 0,", "", "lacks 'offset_bytes'"},
        {"attn_q_a.weight", "attn_q_z.weight", "unknown tensor 'attn_q_z.weight'"},
        {"fingerprint: \"0x", "fingerprint: \"1x", "must be 0x and 16 hex digits"},
        {"fingerprint: \"0x0", "fingerprint: \"0xg", "must be 0x and 16 hex digits"},
        {"fp16_flops_per_s: 1", "fp16_flops_per_s: nan1", "fp16_flops_per_s is 'nan1"},
        {"fp16_flops_per_s: 165000000000000", "fp16_flops_per_s: inf", "is 'inf'"},
        {"mtp: true", "mtp: maybe", "grant.mtp is 'maybe'"},
        {"source: cli", "source: shell", "features[0].source is 'shell'"},
        {"regions:\n", "regions: 3\n    ignored:\n", "regions must be a list"},
        {"nvme:\n", "nvme: 3\nignored:\n", "nvme must be a mapping"},
    };
    for (const auto& row : rows) {
        const std::string problem = problem_of(replaced(text, row.from, row.to));
        EXPECT_NE(problem.find(row.expected), std::string::npos)
            << row.from << " -> " << row.to << ": " << problem;
        EXPECT_TRUE(problem.starts_with("p.yaml:")) << problem;
        EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
    }
}

TEST(PlanYaml, RefusesTextThatIsNoPlan) {
    for (const char* text : {"", "plan", "[]", "{}", "a: &x 1\nb: *x\n", "\xff\xfe", "- - - -"})
        EXPECT_NE(problem_of(text), "") << text;
}

TEST(PlanYaml, SurvivesCutAndScrambledFiles) {
    const std::string text = plan_to_yaml(sample_plan());
    for (std::size_t length = 0; length < text.size() - 1; length += 7)
        (void)problem_of(text.substr(0, length));
    const std::uint64_t seed = 20'261'201;
    std::mt19937_64 random(seed);
    for (int round = 0; round < 2'000; ++round) {
        std::string scrambled = text;
        for (int edit = 0; edit < 3; ++edit)
            scrambled[random() % scrambled.size()] = static_cast<char>(random() % 256);
        const Result<Plan> plan = plan_from_yaml(scrambled, "p.yaml");
        if (plan) {
            EXPECT_EQ(*plan, sample_plan()) << "seed " << seed << ", round " << round;
        }
    }
}

TEST(PlanYaml, StoresEveryKindOfRegionAndEveryTensorRole) {
    for (std::size_t kind = 0; kind < region_kind_names().size(); ++kind) {
        Plan plan = sample_plan();
        plan.devices[0].arena.regions[0].kind = static_cast<RegionKind>(kind);
        const Result<Plan> back = plan_from_yaml(plan_to_yaml(plan), "p.yaml");
        ASSERT_TRUE(back.ok()) << back.error().message;
        EXPECT_EQ(back->devices[0].arena.regions[0].kind, static_cast<RegionKind>(kind));
    }
    for (std::size_t role = 0; role < static_cast<std::size_t>(TensorRole::count); ++role) {
        const auto wanted = static_cast<TensorRole>(role);
        EXPECT_EQ(find_tensor_role(tensor_role_name(wanted)), wanted) << tensor_role_name(wanted);
    }
}

}  // namespace
}  // namespace plimsoll::test
