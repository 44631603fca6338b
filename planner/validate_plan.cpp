#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/plan.hpp"
#include "planner/plan_names.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

using Problem = std::optional<std::string>;

/// What each kind of region is for, stated a second time: the planner has its own table, and a
/// mistake in one of them shows.
constexpr struct {
    RegionKind kind;
    RegionClass cls;
} kClassOfKind[] = {
    {RegionKind::layer_dense, RegionClass::dense_weights},
    {RegionKind::head_dense, RegionClass::dense_weights},
    {RegionKind::head_output, RegionClass::dense_weights},
    {RegionKind::layer_experts, RegionClass::expert_weights},
    {RegionKind::expert_pool, RegionClass::expert_weights},
    {RegionKind::kv_window, RegionClass::kv},
    {RegionKind::kv_rows, RegionClass::kv},
    {RegionKind::kv_index, RegionClass::kv},
    {RegionKind::kv_state, RegionClass::kv},
    {RegionKind::kv_index_state, RegionClass::kv},
    {RegionKind::mtp_dense, RegionClass::mtp_weights},
    {RegionKind::mtp_experts, RegionClass::mtp_weights},
    {RegionKind::mtp_window, RegionClass::mtp_cache},
    {RegionKind::mtp_hidden, RegionClass::mtp_cache},
    {RegionKind::layer_fp16, RegionClass::fp16_cache},
    {RegionKind::workspace, RegionClass::workspace},
    {RegionKind::gemm_workspace, RegionClass::gemm_workspace},
    {RegionKind::logits, RegionClass::logits},
    {RegionKind::staging_dense, RegionClass::staging},
    {RegionKind::staging_head, RegionClass::staging},
    {RegionKind::staging_peer, RegionClass::staging},
    {RegionKind::staging_ring, RegionClass::staging},
    {RegionKind::embedding, RegionClass::embedding},
};
static_assert(std::size(kClassOfKind) == static_cast<std::size_t>(RegionKind::count));

bool belongs_to(RegionKind kind, RegionClass cls) {
    for (const auto& row : kClassOfKind)
        if (row.kind == kind) return row.cls == cls;
    return false;
}

Problem check_region(const Arena& arena, const Region& region) {
    const std::string where = fmt::format("{}: region {}", arena.name, region.name);
    if (!belongs_to(region.kind, region.cls))
        return fmt::format("{} of kind {} counts as {}", where, region_kind_name(region.kind),
                           region_class_name(region.cls));
    if (region.size_bytes == 0) return fmt::format("{} is empty", where);
    if (region.offset_bytes % kTensorAlignmentBytes != 0)
        return fmt::format("{} starts at {}, not a multiple of {}", where, region.offset_bytes,
                           kTensorAlignmentBytes);
    if (region.size_bytes % kTensorAlignmentBytes != 0)
        return fmt::format("{} has {} bytes, not a multiple of {}", where, region.size_bytes,
                           kTensorAlignmentBytes);
    const auto end = checked_add(region.offset_bytes, region.size_bytes);
    if (!end || *end > arena.planned_bytes)
        return fmt::format("{} ends beyond the arena's {} bytes", where, arena.planned_bytes);
    if (region.slot_count == 0)
        return region.slot_bytes == 0 ? Problem{}
                                      : fmt::format("{} has a slot size but no slots", where);
    if (region.slot_bytes % kTensorAlignmentBytes != 0)
        return fmt::format("{} has slots of {} bytes, not a multiple of {}", where,
                           region.slot_bytes, kTensorAlignmentBytes);
    const auto product = checked_mul(region.slot_bytes, region.slot_count);
    if (!product || *product != region.size_bytes)
        return fmt::format("{}: {} slots of {} bytes are not {} bytes", where, region.slot_count,
                           region.slot_bytes, region.size_bytes);
    return {};
}

Problem check_pairs(const Arena& arena) {
    for (std::size_t a = 0; a < arena.regions.size(); ++a) {
        for (std::size_t b = 0; b < a; ++b) {
            const Region &one = arena.regions[b], &two = arena.regions[a];
            if (one.offset_bytes < two.offset_bytes + two.size_bytes &&
                two.offset_bytes < one.offset_bytes + one.size_bytes)
                return fmt::format("{}: regions {} and {} overlap", arena.name, one.name, two.name);
            if (one.offset_bytes > two.offset_bytes)
                return fmt::format("{}: region {} is listed before {} but lies after it",
                                   arena.name, one.name, two.name);
            if (one.name == two.name)
                return fmt::format("{}: two regions are called {}", arena.name, one.name);
        }
    }
    return {};
}

Problem check_sums(const Arena& arena) {
    std::uint64_t total_bytes = 0;
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls) {
        std::uint64_t class_bytes = 0;
        for (const Region& region : arena.regions)
            if (region.cls == static_cast<RegionClass>(cls)) class_bytes += region.size_bytes;
        if (class_bytes != arena.by_class[cls])
            return fmt::format("{}: class {} says {} bytes, its regions have {}", arena.name,
                               region_class_name(static_cast<RegionClass>(cls)),
                               arena.by_class[cls], class_bytes);
        total_bytes += class_bytes;
    }
    // Without overlap, a total that equals the arena also leaves no gap.
    if (total_bytes != arena.planned_bytes)
        return fmt::format("{}: planned {} bytes, its classes add up to {}", arena.name,
                           arena.planned_bytes, total_bytes);
    return {};
}

Problem check_arena(const Arena& arena, std::uint64_t budget_bytes) {
    if (arena.planned_bytes > budget_bytes)
        return fmt::format("{}: planned {} bytes of a budget of {}", arena.name,
                           arena.planned_bytes, budget_bytes);
    for (const Region& region : arena.regions)
        if (Problem problem = check_region(arena, region)) return problem;
    if (Problem problem = check_pairs(arena)) return problem;
    return check_sums(arena);
}

Problem check_buffer(const DevicePlan& device, const WorkspaceBuffer& buffer) {
    const std::string where =
        fmt::format("{}: workspace buffer {}", device.facts.name, buffer.name);
    if (buffer.lifetime.first_op >= buffer.lifetime.last_op)
        return fmt::format("{} is never alive", where);
    if (buffer.offset_bytes % kTensorAlignmentBytes != 0)
        return fmt::format("{} starts at {}, not a multiple of {}", where, buffer.offset_bytes,
                           kTensorAlignmentBytes);
    const auto end = checked_add(buffer.offset_bytes, buffer.size_bytes);
    if (!end || *end > device.workspace_packed_bytes)
        return fmt::format("{} ends beyond the {} packed bytes", where,
                           device.workspace_packed_bytes);
    return {};
}

/// The largest sum alive at one op can be no more than what is packed.
Problem check_workspace(const DevicePlan& device) {
    const Region* region = device.arena.find(RegionKind::workspace);
    const std::uint64_t room_bytes = region == nullptr ? 0 : region->size_bytes;
    if (device.workspace_packed_bytes > room_bytes)
        return fmt::format("{}: {} packed workspace bytes in a region of {}", device.facts.name,
                           device.workspace_packed_bytes, room_bytes);
    if (device.workspace_lower_bound_bytes > device.workspace_packed_bytes)
        return fmt::format("{}: the workspace's lower bound {} is above its {} packed bytes",
                           device.facts.name, device.workspace_lower_bound_bytes,
                           device.workspace_packed_bytes);
    for (std::size_t a = 0; a < device.workspace.size(); ++a) {
        const WorkspaceBuffer& one = device.workspace[a];
        if (Problem problem = check_buffer(device, one)) return problem;
        for (std::size_t b = 0; b < a; ++b) {
            const WorkspaceBuffer& two = device.workspace[b];
            if (one.name == two.name)
                return fmt::format("{}: two workspace buffers are called {}", device.facts.name,
                                   one.name);
            const bool both_live = one.lifetime.first_op < two.lifetime.last_op &&
                                   two.lifetime.first_op < one.lifetime.last_op;
            const bool share_bytes = one.offset_bytes < two.offset_bytes + two.size_bytes &&
                                     two.offset_bytes < one.offset_bytes + one.size_bytes;
            if (both_live && share_bytes)
                return fmt::format("{}: workspace buffers {} and {} overlap while both are live",
                                   device.facts.name, two.name, one.name);
        }
    }
    return {};
}

Problem check_device(const Plan& plan, std::size_t index) {
    const DevicePlan& device = plan.devices[index];
    const std::string& name = device.facts.name;
    const std::uint32_t expected_first = index == 0 ? 0 : plan.devices[index - 1].layer_last;
    for (std::size_t other = 0; other < index; ++other)
        if (plan.devices[other].facts.name == name)
            return fmt::format("two devices are called {}", name);
    if (device.free_bytes != saturating_sub(device.vram_bytes, device.facts.overhead_bytes))
        return fmt::format("{}: {} free bytes are not {} less {} of overhead", name,
                           device.free_bytes, device.vram_bytes, device.facts.overhead_bytes);
    if (device.budget_bytes != saturating_sub(device.free_bytes, device.reserve_bytes))
        return fmt::format("{}: a budget of {} is not {} free less {} in reserve", name,
                           device.budget_bytes, device.free_bytes, device.reserve_bytes);
    if (device.layer_first != expected_first || device.layer_last <= device.layer_first)
        return fmt::format("{}: runs layers {} to {}, which does not follow on from {}", name,
                           device.layer_first, device.layer_last, expected_first);
    if (Problem problem = check_arena(device.arena, device.budget_bytes)) return problem;
    return check_workspace(device);
}

Problem check_host(const Plan& plan) {
    const HostPlan& host = plan.host;
    if (host.budget_bytes > host.available_bytes)
        return fmt::format("host: a budget of {} of {} available bytes", host.budget_bytes,
                           host.available_bytes);
    if (host.pinned_bytes > host.arena.planned_bytes)
        return fmt::format("host: {} pinned of {} planned bytes", host.pinned_bytes,
                           host.arena.planned_bytes);
    return check_arena(host.arena, host.budget_bytes);
}

/// Experts [first, first + count) of a layer, at one place.
struct ExpertRange {
    std::uint32_t layer = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    std::string_view place;
};

/// Adds an arena's resident experts; its own count of them must agree.
Problem collect_experts(const Arena& arena, std::uint64_t stated, std::uint32_t n_layers,
                        std::vector<ExpertRange>& out) {
    std::uint64_t experts = 0;
    for (const Region& region : arena.regions) {
        if (region.kind != RegionKind::layer_experts) continue;
        if (region.layer < 0 || static_cast<std::uint32_t>(region.layer) >= n_layers)
            return fmt::format("{}: region {} is of layer {}, which the model lacks", arena.name,
                               region.name, region.layer);
        out.push_back({static_cast<std::uint32_t>(region.layer), region.expert_first,
                       region.slot_count, arena.name});
        experts += region.slot_count;
    }
    if (experts != stated)
        return fmt::format("{}: says {} experts, its regions hold {}", arena.name, stated, experts);
    return {};
}

Problem check_experts(const Plan& plan) {
    std::vector<ExpertRange> ranges;
    for (const DevicePlan& device : plan.devices) {
        if (Problem problem = collect_experts(device.arena, device.experts, plan.n_layers, ranges))
            return problem;
        for (const ExpertRange& range : ranges)
            if (range.place == device.arena.name &&
                (range.layer < device.layer_first || range.layer >= device.layer_last))
                return fmt::format("{}: holds experts of layer {}, which runs elsewhere",
                                   device.facts.name, range.layer);
    }
    if (Problem problem =
            collect_experts(plan.host.arena, plan.host.experts, plan.n_layers, ranges))
        return problem;
    std::uint64_t in_file = 0;
    for (const NvmeLayer& row : plan.nvme.layers) {
        ranges.push_back({row.layer, row.expert_first, row.expert_count, "nvme"});
        in_file += row.expert_count;
    }
    if (in_file != plan.nvme.experts)
        return fmt::format("nvme: says {} experts, its layers list {}", plan.nvme.experts, in_file);
    if (plan.n_layers == 0 || plan.experts_total % plan.n_layers != 0)
        return fmt::format("{} experts cannot be spread over {} layers", plan.experts_total,
                           plan.n_layers);
    // Ranges in order of layer and first expert must tile the model: each starts where the last
    // ended.
    std::sort(ranges.begin(), ranges.end(), [](const ExpertRange& a, const ExpertRange& b) {
        return std::pair(a.layer, a.first) < std::pair(b.layer, b.first);
    });
    const std::uint64_t per_layer = plan.experts_total / plan.n_layers;
    std::uint64_t next = 0;
    for (const ExpertRange& range : ranges) {
        const std::uint64_t first = range.layer * per_layer + range.first;
        if (range.first + range.count > per_layer)
            return fmt::format("{}: experts {} to {} of layer {}, which has {}", range.place,
                               range.first, range.first + range.count, range.layer, per_layer);
        if (first < next)
            return fmt::format("{}: expert {} of layer {} is placed twice", range.place,
                               range.first, range.layer);
        if (first > next) break;
        next = first + range.count;
    }
    if (next != plan.experts_total)
        return fmt::format("expert {} of layer {} is nowhere", next % per_layer, next / per_layer);
    return {};
}

Problem check_grant(const Plan& plan) {
    const Grant& grant = plan.grant;
    if (grant.mtp && !plan.mtp_model) return "mtp is granted without a draft head";
    if (grant.mtp != (grant.drafts != 0))
        return fmt::format("{} drafts with mtp {}", grant.drafts, grant.mtp ? "on" : "off");
    if (grant.context_tokens == 0) return "a context of no tokens";
    if (grant.chunk_tokens == 0) return "a prefill chunk of no tokens";
    if (grant.sessions == 0) return "no session";
    if (grant.dense_streamed_layers > plan.n_layers)
        return fmt::format("{} dense layers are streamed of {}", grant.dense_streamed_layers,
                           plan.n_layers);
    if (grant.kv_format == KvFormat::packed && (!grant.rounding || grant.precise))
        return "packed rows need cache rounding, and float32 rows for precise";
    for (std::size_t a = 0; a < plan.features.size(); ++a)
        for (std::size_t b = 0; b < a; ++b)
            if (plan.features[a].name == plan.features[b].name)
                return fmt::format("feature {} is listed twice", plan.features[a].name);
    return {};
}

/// A refusal shows the rooms and nothing in them.
Problem check_refused(const Plan& plan) {
    if (plan.refusal->short_bytes == 0) return "refused, but short by nothing";
    for (const DevicePlan& device : plan.devices)
        if (device.arena.planned_bytes != 0 || !device.arena.regions.empty())
            return fmt::format("refused, but {} has regions", device.facts.name);
    if (plan.host.arena.planned_bytes != 0 || !plan.host.arena.regions.empty())
        return "refused, but the host has regions";
    return {};
}

Problem check_verdict(const Plan& plan) {
    const Grant& grant = plan.grant;
    const bool off_device = plan.experts_on_devices() < plan.experts_total || grant.head_streamed ||
                            grant.dense_streamed_layers != 0;
    if (off_device != (plan.verdict == Verdict::spilled))
        return fmt::format("the verdict is {}, and {} of {} experts are on devices",
                           verdict_name(plan.verdict), plan.experts_on_devices(),
                           plan.experts_total);
    return {};
}

}  // namespace

std::optional<std::string> validate(const Plan& plan) {
    if (plan.devices.empty()) return "no device";
    if (plan.refusal.has_value() != (plan.verdict == Verdict::no_fit))
        return fmt::format("the verdict is {} {} a refusal", verdict_name(plan.verdict),
                           plan.refusal ? "with" : "without");
    for (std::size_t index = 0; index < plan.devices.size(); ++index)
        if (Problem problem = check_device(plan, index)) return problem;
    if (plan.devices.back().layer_last != plan.n_layers)
        return fmt::format("{} of {} layers run on a device", plan.devices.back().layer_last,
                           plan.n_layers);
    if (Problem problem = check_host(plan)) return problem;
    if (Problem problem = check_grant(plan)) return problem;
    if (plan.refusal) return check_refused(plan);
    if (Problem problem = check_experts(plan)) return problem;
    return check_verdict(plan);
}

bool is_worse(const Plan& a, const Plan& b) {
    if (a.refusal.has_value() != b.refusal.has_value()) return a.refusal.has_value();
    if (a.refusal) return false;
    const auto rank = [](const Plan& plan) {
        std::uint64_t dense_bytes = 0, fp16_bytes = 0;
        for (const DevicePlan& device : plan.devices) {
            dense_bytes += device.arena.bytes_of(RegionClass::dense_weights);
            fp16_bytes += device.arena.bytes_of(RegionClass::fp16_cache);
        }
        const Grant& grant = plan.grant;
        return std::array<std::uint64_t, 8>{dense_bytes,
                                            grant.context_tokens,
                                            std::min(grant.chunk_tokens, kChunkTokensBase),
                                            plan.experts_on_devices(),
                                            grant.mtp ? 1ull : 0ull,
                                            grant.embedding_on_host ? 0ull : 1ull,
                                            grant.chunk_tokens,
                                            fp16_bytes};
    };
    return rank(a) < rank(b);
}

}  // namespace plimsoll
