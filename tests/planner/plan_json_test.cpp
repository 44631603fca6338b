#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/plan.hpp"
#include "tests/planner/sample_plan.hpp"

namespace plimsoll::test {
namespace {

using nlohmann::json;

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return keys;
}

TEST(PlanJson, HasTheKeysOfTheSchemaInItsOrder) {
    const auto out = nlohmann::ordered_json::parse(plan_to_json(sample_plan()));
    EXPECT_EQ(keys_of(out),
              (std::vector<std::string>{"schema_version", "verdict", "context_tokens",
                                        "prefill_chunk_tokens", "kv_format", "devices", "host",
                                        "nvme", "features", "experts", "workspace", "predicted",
                                        "refusal", "plan_hash"}));
    EXPECT_EQ(keys_of(out["devices"][0]),
              (std::vector<std::string>{"name", "total_bytes", "overhead_bytes", "free_bytes",
                                        "reserve_bytes", "budget_bytes", "planned_bytes",
                                        "slack_bytes", "by_class"}));
    EXPECT_EQ(keys_of(out["features"][0]), (std::vector<std::string>{"name", "requested", "granted",
                                                                     "bytes", "source", "reason"}));
    EXPECT_EQ(out["devices"][0]["by_class"].size(), kRegionClassCount);
    EXPECT_TRUE(out["refusal"].is_null());
}

TEST(PlanJson, TypesFeatureValuesAsTheyAreMeant) {
    Plan plan = sample_plan();
    plan.features[1].granted = "not json";
    const json out = json::parse(plan_to_json(plan));
    EXPECT_EQ(out["features"][0]["requested"], 4096);
    EXPECT_EQ(out["features"][1]["requested"], "device");
    EXPECT_EQ(out["features"][1]["granted"], "not json");
}

TEST(PlanJson, ClassesAddUpToWhatIsPlanned) {
    const json out = json::parse(plan_to_json(sample_plan()));
    for (const json& device : out["devices"]) {
        std::uint64_t sum = 0;
        for (const json& bytes : device["by_class"]) sum += bytes.get<std::uint64_t>();
        EXPECT_EQ(sum, device["planned_bytes"]);
        EXPECT_EQ(device["planned_bytes"].get<std::uint64_t>() +
                      device["slack_bytes"].get<std::uint64_t>(),
                  device["budget_bytes"]);
    }
    const json& experts = out["experts"];
    EXPECT_EQ(
        experts["device"].get<int>() + experts["host"].get<int>() + experts["nvme"].get<int>(),
        experts["total"]);
}

TEST(PlanJson, ShowsTheNumbersOfARefusalToo) {
    const json out = json::parse(plan_to_json(refused_plan()));
    EXPECT_EQ(out["verdict"], "no_fit");
    EXPECT_EQ(out["devices"][0]["budget_bytes"], 53'248);
    EXPECT_EQ(out["refusal"]["short_bytes"], 1 << 30);
    EXPECT_EQ(out["refusal"]["suggestions"][0]["option"], "--ctx 2048");
    EXPECT_EQ(out["refusal"]["suggestions"][0]["verdict"], "degraded");
}

TEST(PlanJson, ReplacesBytesThatAreNotUtf8) {
    Plan plan = sample_plan();
    plan.features[0].reason = "caf\xe9";
    EXPECT_TRUE(json::accept(plan_to_json(plan)));
}

}  // namespace
}  // namespace plimsoll::test
