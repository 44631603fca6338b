#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/plan.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

/// Every class, those without a byte too, so that a reader needs no defaults.
Json class_sums(const Arena& arena) {
    Json sums = Json::object();
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
        sums[std::string(region_class_name(static_cast<RegionClass>(cls)))] = arena.by_class[cls];
    return sums;
}

Json device_json(const DevicePlan& device) {
    return {{"name", device.facts.name},
            {"total_bytes", device.facts.total_bytes},
            {"overhead_bytes", device.facts.overhead_bytes},
            {"free_bytes", device.free_bytes},
            {"reserve_bytes", device.reserve_bytes},
            {"budget_bytes", device.budget_bytes},
            {"planned_bytes", device.arena.planned_bytes},
            {"slack_bytes", device.slack_bytes()},
            {"by_class", class_sums(device.arena)}};
}

Json host_json(const HostPlan& host) {
    return {{"budget_bytes", host.budget_bytes},
            {"planned_bytes", host.arena.planned_bytes},
            {"pinned_bytes", host.pinned_bytes},
            {"by_class", class_sums(host.arena)}};
}

/// A feature's value is JSON text already; text that is not stays text.
Json value_json(const std::string& text) {
    Json value = Json::parse(text, nullptr, false);
    return value.is_discarded() ? Json(text) : value;
}

Json feature_json(const Feature& feature) {
    return {{"name", feature.name},
            {"requested", value_json(feature.requested)},
            {"granted", value_json(feature.granted)},
            {"bytes", feature.bytes},
            {"source", source_name(feature.source)},
            {"reason", feature.reason}};
}

Json refusal_json(const Refusal& refusal) {
    Json suggestions = Json::array();
    for (const Suggestion& suggestion : refusal.suggestions)
        suggestions.push_back({{"text", suggestion.text},
                               {"option", suggestion.option},
                               {"verdict", verdict_name(suggestion.verdict)}});
    return {{"pool", refusal.pool},
            {"short_bytes", refusal.short_bytes},
            {"floor_bytes", refusal.floor_bytes},
            {"suggestions", suggestions}};
}

Json workspace_json(const Plan& plan) {
    std::uint64_t packed_bytes = 0, lower_bound_bytes = 0;
    for (const DevicePlan& device : plan.devices) {
        packed_bytes += device.workspace_packed_bytes;
        lower_bound_bytes += device.workspace_lower_bound_bytes;
    }
    return {{"packed_bytes", packed_bytes}, {"lower_bound_bytes", lower_bound_bytes}};
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
    Json devices = Json::array();
    for (const DevicePlan& device : plan.devices) devices.push_back(device_json(device));
    Json features = Json::array();
    for (const Feature& feature : plan.features) features.push_back(feature_json(feature));
    const Json out = {{"schema_version", 1},
                      {"verdict", verdict_name(plan.verdict)},
                      {"context_tokens", plan.grant.context_tokens},
                      {"prefill_chunk_tokens", plan.grant.chunk_tokens},
                      {"kv_format", kv_format_name(plan.grant.kv_format)},
                      {"devices", devices},
                      {"host", host_json(plan.host)},
                      {"nvme", {{"bytes", plan.nvme.bytes}, {"experts", plan.nvme.experts}}},
                      {"features", features},
                      {"experts",
                       {{"total", plan.experts_total},
                        {"device", plan.experts_on_devices()},
                        {"host", plan.host.experts},
                        {"nvme", plan.nvme.experts}}},
                      {"workspace", workspace_json(plan)},
                      {"predicted",
                       {{"decode_tokens_per_s", plan.predicted.decode_tokens_per_s},
                        {"prefill_tokens_per_s", plan.predicted.prefill_tokens_per_s},
                        {"load_seconds", plan.predicted.load_seconds},
                        {"bound", plan.predicted.bound}}},
                      {"refusal", plan.refusal ? refusal_json(*plan.refusal) : Json(nullptr)},
                      {"plan_hash", fmt::format("{:016x}", plan_hash(plan))}};
    // File names may hold bytes that are not UTF-8; JSON may not.
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
