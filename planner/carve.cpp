#include "planner/carve.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/check.hpp"

namespace plimsoll {
namespace {

std::string region_name(const RegionSpec& spec) {
    const auto layered = [&](std::string_view what) {
        return fmt::format("blk.{}.{}", spec.layer, what);
    };
    switch (spec.kind) {
        case RegionKind::layer_dense: return layered("dense");
        case RegionKind::layer_experts: return layered("experts");
        case RegionKind::layer_fp16: return layered("fp16");
        case RegionKind::kv_window: return layered("kv.window");
        case RegionKind::kv_rows: return layered("kv.rows");
        case RegionKind::kv_index: return layered("kv.index");
        case RegionKind::kv_state: return layered("kv.state");
        case RegionKind::kv_index_state: return layered("kv.index_state");
        case RegionKind::expert_pool: return fmt::format("experts.pool.{}", spec.slot_bytes);
        case RegionKind::head_dense: return "head.dense";
        case RegionKind::head_output: return "head.output";
        case RegionKind::embedding: return "embedding";
        case RegionKind::workspace: return "workspace";
        case RegionKind::gemm_workspace: return "gemm_workspace";
        case RegionKind::logits: return "logits";
        case RegionKind::staging_dense: return "staging.dense";
        case RegionKind::staging_head: return "staging.head";
        case RegionKind::staging_peer: return "staging.peer";
        case RegionKind::staging_ring: return "staging.ring";
        case RegionKind::mtp_dense: return "mtp.dense";
        case RegionKind::mtp_experts: return "mtp.experts";
        case RegionKind::mtp_window: return "mtp.window";
        case RegionKind::mtp_hidden: return "mtp.hidden";
        case RegionKind::count: break;
    }
    PLIMSOLL_CHECK(false, "a region kind without a name");
}

void fill_arena(Arena& arena, const std::vector<RegionSpec>& specs, const Model& model) {
    for (const RegionSpec& spec : specs) {
        Region region{.name = region_name(spec),
                      .kind = spec.kind,
                      .cls = class_of(spec.kind),
                      .layer = spec.layer,
                      .offset_bytes = arena.planned_bytes,
                      .size_bytes = spec.size_bytes,
                      .slot_bytes = spec.slot_bytes,
                      .slot_count = spec.slot_count,
                      .expert_first = spec.expert_first};
        if (spec.kind == RegionKind::layer_fp16) {
            region.tensors = fp16_candidates(model, spec.layer);
            region.tensors.resize(spec.tensor_count);
        }
        arena.planned_bytes += spec.size_bytes;
        arena.by_class[static_cast<std::size_t>(region.cls)] += spec.size_bytes;
        arena.regions.push_back(std::move(region));
    }
}

void fill_device(DevicePlan& device, const Footprint& footprint, const Division& division,
                 std::size_t index) {
    const DeviceShare& share = division.devices[index];
    device.layer_first = share.layer_first;
    device.layer_last = share.layer_last;
    device.experts = share.experts;
    fill_arena(device.arena, footprint.device_regions(division, index), footprint.model());
    const Footprint::PackedSchedule& packed = footprint.packed_schedule(division, index);
    for (std::size_t at = 0; at < packed.schedule.buffers.size(); ++at) {
        const Buffer& buffer = packed.schedule.buffers[at];
        device.workspace.push_back({.name = buffer.name,
                                    .offset_bytes = packed.packing.offset_bytes[at],
                                    .size_bytes = buffer.size_bytes,
                                    .lifetime = buffer.lifetime});
    }
    device.workspace_packed_bytes = packed.packing.packed_bytes;
    device.workspace_lower_bound_bytes = packed.packing.lower_bound_bytes;
}

void fill_nvme(NvmePlan& nvme, const Footprint& footprint, const Division& division) {
    const std::uint64_t n_experts = footprint.model().hyper.n_experts;
    const Footprint::ExpertSplit split = footprint.expert_split(division);
    for (std::uint32_t layer = 0; layer < footprint.model().hyper.n_layers; ++layer) {
        const std::uint64_t first = split.device[layer] + split.host[layer];
        if (first == n_experts) continue;
        nvme.layers.push_back({.layer = layer,
                               .expert_first = static_cast<std::uint32_t>(first),
                               .expert_count = static_cast<std::uint32_t>(n_experts - first)});
        nvme.experts += n_experts - first;
        nvme.bytes += (n_experts - first) * footprint.slot_bytes(layer);
    }
}

}  // namespace

Result<Division> division_of(const Plan& plan, const Footprint& footprint) {
    const auto wrong = [](std::string problem) {
        return Error{ErrorKind::bad_file, std::move(problem)};
    };
    const Hyperparameters& hyper = footprint.model().hyper;
    const Grant& grant = plan.grant;
    if (plan.n_layers != hyper.n_layers || plan.experts_total != footprint.experts_total())
        return wrong(fmt::format("it is for {} layers and {} experts, the model has {} and {}",
                                 plan.n_layers, plan.experts_total, hyper.n_layers,
                                 footprint.experts_total()));
    if (grant.context_tokens == 0 || grant.context_tokens > hyper.context_length_tokens)
        return wrong(fmt::format("context_tokens {} is outside 1 to {}", grant.context_tokens,
                                 hyper.context_length_tokens));
    if (grant.chunk_tokens == 0) return wrong("chunk_tokens is 0");
    if (grant.mtp != (footprint.mtp() != nullptr) || (grant.drafts != 0) != grant.mtp)
        return wrong("mtp, drafts and the draft head named disagree");
    if (grant.dense_streamed_layers > hyper.n_layers)
        return wrong(fmt::format("dense_streamed_layers {} is above {} layers",
                                 grant.dense_streamed_layers, hyper.n_layers));
    Division division{.grant = grant, .host_experts = plan.host.experts};
    std::uint64_t placed = plan.host.experts;
    for (const DevicePlan& device : plan.devices) {
        DeviceShare share{.layer_first = device.layer_first,
                          .layer_last = device.layer_last,
                          .experts = device.experts};
        for (const Region& region : device.arena.regions)
            if (region.kind == RegionKind::layer_fp16) share.fp16_tensors += region.tensors.size();
        if (share.layer_last > hyper.n_layers || share.experts > footprint.experts_of(share) ||
            share.fp16_tensors > footprint.fp16_candidates_of(share).size())
            return wrong(fmt::format("{} holds more than its layers have", device.facts.name));
        placed += share.experts;
        division.devices.push_back(share);
    }
    if (placed > plan.experts_total)
        return wrong(fmt::format("{} experts are placed of {}", placed, plan.experts_total));
    return division;
}

namespace {

/// The first region of `found` that is not as `expected` has it.
std::string difference(const Arena& expected, const Arena& found) {
    const std::size_t count = std::min(expected.regions.size(), found.regions.size());
    for (std::size_t at = 0; at < count; ++at)
        if (expected.regions[at] != found.regions[at])
            return fmt::format(
                "{}: region {} is not what the plan's grant implies ({} bytes at {}; {} has {} "
                "at {})",
                found.name, found.regions[at].name, found.regions[at].size_bytes,
                found.regions[at].offset_bytes, expected.regions[at].name,
                expected.regions[at].size_bytes, expected.regions[at].offset_bytes);
    return fmt::format("{}: {} regions, the plan's grant implies {}", found.name,
                       found.regions.size(), expected.regions.size());
}

}  // namespace

void carve(Plan& plan, const Footprint& footprint, const Division& division) {
    for (std::size_t device = 0; device < plan.devices.size(); ++device)
        fill_device(plan.devices[device], footprint, division, device);
    plan.host.pinned_bytes = footprint.pinned_bytes(division);
    plan.host.experts = division.host_experts;
    fill_arena(plan.host.arena, footprint.host_regions(division), footprint.model());
    fill_nvme(plan.nvme, footprint, division);
}

Status check_against(const Plan& plan, const Model& model, const Model* mtp) {
    MachineFacts machine{.unified_memory = plan.unified_memory};
    for (const DevicePlan& device : plan.devices) machine.devices.push_back(device.facts);
    const Footprint footprint(model, plan.grant.mtp ? mtp : nullptr, machine);
    const Result<Division> division = division_of(plan, footprint);
    if (!division) return division.error();
    Plan expected{.n_layers = plan.n_layers, .grant = plan.grant};
    for (const DevicePlan& device : plan.devices)
        expected.devices.push_back({.facts = device.facts, .arena = {.name = device.arena.name}});
    expected.host.arena.name = plan.host.arena.name;
    carve(expected, footprint, *division);
    const auto wrong = [](std::string problem) {
        return Error{ErrorKind::bad_file, std::move(problem)};
    };
    for (std::size_t device = 0; device < plan.devices.size(); ++device) {
        if (expected.devices[device].arena != plan.devices[device].arena)
            return wrong(difference(expected.devices[device].arena, plan.devices[device].arena));
        if (expected.devices[device].workspace != plan.devices[device].workspace)
            return wrong(fmt::format("{}: the workspace is not that of the schedule",
                                     plan.devices[device].facts.name));
    }
    if (expected.host.arena != plan.host.arena)
        return wrong(difference(expected.host.arena, plan.host.arena));
    if (expected.nvme != plan.nvme) return wrong("the experts left in the file are not the rest");
    return ok_status();
}

}  // namespace plimsoll
