#include "planner/plan_names.hpp"

#include <algorithm>

#include "planner/tensor_table.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kClassNames[] = {
    "dense_weights", "expert_weights", "kv",     "mtp_weights", "mtp_cache", "fp16_cache",
    "workspace",     "gemm_workspace", "logits", "staging",     "embedding"};
static_assert(std::size(kClassNames) == kRegionClassCount);

constexpr std::string_view kKindNames[] = {
    "layer_dense",    "head_dense",   "head_output",  "embedding",      "layer_experts",
    "expert_pool",    "kv_window",    "kv_rows",      "kv_index",       "kv_state",
    "kv_index_state", "layer_fp16",   "workspace",    "gemm_workspace", "logits",
    "staging_dense",  "staging_head", "staging_peer", "staging_ring",   "mtp_dense",
    "mtp_experts",    "mtp_window",   "mtp_hidden"};
static_assert(std::size(kKindNames) == static_cast<std::size_t>(RegionKind::count));

constexpr std::string_view kVerdictNames[] = {"full", "degraded", "spilled", "no_fit"};

}  // namespace

std::span<const std::string_view> region_class_names() { return kClassNames; }
std::span<const std::string_view> region_kind_names() { return kKindNames; }
std::span<const std::string_view> verdict_names() { return kVerdictNames; }

std::string_view region_class_name(RegionClass cls) {
    return kClassNames[static_cast<std::size_t>(cls)];
}

std::optional<RegionClass> find_region_class(std::string_view name) {
    const auto* const at = std::find(std::begin(kClassNames), std::end(kClassNames), name);
    if (at == std::end(kClassNames)) return std::nullopt;
    return static_cast<RegionClass>(at - std::begin(kClassNames));
}

std::string_view region_kind_name(RegionKind kind) {
    return kKindNames[static_cast<std::size_t>(kind)];
}

std::string_view verdict_name(Verdict verdict) {
    return kVerdictNames[static_cast<std::size_t>(verdict)];
}

std::string_view tensor_role_name(TensorRole role) { return info_of(role).suffix; }

std::optional<TensorRole> find_tensor_role(std::string_view name) {
    for (const TensorRoleInfo& row : tensor_roles())
        if (row.suffix == name) return row.role;
    return std::nullopt;
}

}  // namespace plimsoll
