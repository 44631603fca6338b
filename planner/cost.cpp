#include "planner/cost.hpp"

#include <algorithm>

#include "planner/carve.hpp"
#include "planner/check.hpp"
#include "planner/op_cost.hpp"

namespace plimsoll {
namespace {

/// Shares of the device file's rates that a step is expected to reach where nobody has measured
/// them. Planning values: what well-made engines publish for batch 1 (60 to 80 % of bandwidth) and
/// quantised prefill (a third to a half of the tensor rate), taken low.
constexpr double kDecodeBandwidthShare = 0.6;
constexpr double kPrefillComputeShare = 0.35;
constexpr double kLinkShare = 0.9;

/// Rates assumed where a device file is silent.
constexpr double kNvmeBytesPerS = 3e9;
constexpr double kCpuFlopsPerBandwidthByte =
    8;  // 8-bit dot products on a core per byte it can stream

double share_or(double measured, double expected) { return measured > 0 ? measured : expected; }

double memory_rate(const DeviceFacts& device) {
    return std::max(1.0, device.memory_bandwidth_bytes_per_s *
                             share_or(device.decode_bandwidth_share, kDecodeBandwidthShare));
}

double flop_rate(const DeviceFacts& device) {
    const double rate =
        device.fp16_flops_per_s > 0
            ? device.fp16_flops_per_s * share_or(device.prefill_compute_share, kPrefillComputeShare)
            : device.memory_bandwidth_bytes_per_s * kCpuFlopsPerBandwidthByte;
    return std::max(1.0, rate);
}

double link_rate(const MachineFacts& machine, const DeviceFacts& device) {
    double rate = memory_rate(device);
    if (machine.is_cpu())
        rate = machine.host_memory_bandwidth_bytes_per_s / 2;  // read and write one memory
    else if (device.pcie_bandwidth_bytes_per_s > 0)
        rate = device.pcie_bandwidth_bytes_per_s * kLinkShare;
    return std::max(1.0, rate);
}

double nvme_rate(const MachineFacts& machine) {
    return machine.nvme_read_bytes_per_s > 0 ? machine.nvme_read_bytes_per_s * kLinkShare
                                             : kNvmeBytesPerS;
}

/// Adds what a device moves and computes, of that `link_bytes` and `nvme_bytes` from elsewhere.
struct Addition {
    OpCost ops;
    double link_bytes = 0;
    double nvme_bytes = 0;
};
void add(StepCost& cost, const Addition& part, const MachineFacts& machine,
         const DeviceFacts& device) {
    cost.memory_bytes += part.ops.bytes;
    cost.link_bytes += part.link_bytes;
    cost.nvme_bytes += part.nvme_bytes;
    cost.flops += part.ops.flops;
    cost.memory_seconds += part.ops.bytes / memory_rate(device);
    cost.link_seconds += part.link_bytes / link_rate(machine, device);
    cost.nvme_seconds += part.nvme_bytes / nvme_rate(machine);
    cost.compute_seconds += part.ops.flops / flop_rate(device);
}

/// One step of `tokens` behind `position`, uniform routing.
StepCost step_cost(const Footprint& footprint, const Division& division, std::uint64_t position,
                   std::uint64_t tokens) {
    const Model& model = footprint.model();
    const MachineFacts& machine = footprint.machine();
    const Grant& grant = division.grant;
    const Footprint::ExpertSplit split = footprint.expert_split(division);
    StepCost cost;
    for (std::size_t index = 0; index < division.devices.size(); ++index) {
        const DeviceShare& share = division.devices[index];
        const DeviceFacts& device = machine.devices[index];
        const PricedStep step{.schedule = footprint.packed_schedule(division, index).schedule,
                              .model = model,
                              .kv_format = grant.kv_format,
                              .planned_tokens = std::max(grant.chunk_tokens, 1 + grant.drafts),
                              .tokens = tokens,
                              .position = position};
        for (std::uint32_t layer = share.layer_first; layer < share.layer_last; ++layer) {
            Addition part{.ops = layer_cost(step, static_cast<std::int32_t>(layer))};
            const double n_experts = model.hyper.n_experts;
            const double on_host = static_cast<double>(split.host[layer]) / n_experts;
            const double on_device = static_cast<double>(split.device[layer]) / n_experts;
            part.link_bytes = part.ops.expert_bytes * on_host;
            part.nvme_bytes = part.ops.expert_bytes * std::max(0.0, 1 - on_host - on_device);
            if (layer < grant.dense_streamed_layers) part.link_bytes += part.ops.dense_bytes;
            add(cost, part, machine, device);
        }
        add(cost, {.ops = embed_cost(step)}, machine, device);
        Addition head{.ops = head_cost(step)};
        if (grant.head_streamed) head.link_bytes = head.ops.dense_bytes;
        add(cost, head, machine, device);
    }
    return cost;
}

/// Of a decoded token what the device itself takes: on a GPU its few products hide behind the
/// reads.
double near_seconds(const Footprint& footprint, const StepCost& cost) {
    return std::max(cost.memory_seconds, footprint.machine().is_cpu() ? cost.compute_seconds : 0.0);
}

}  // namespace

StepCost decode_cost(const Footprint& footprint, const Division& division, std::uint64_t position) {
    StepCost cost = step_cost(footprint, division, position, 1);
    cost.seconds = near_seconds(footprint, cost) + cost.link_seconds + cost.nvme_seconds;
    return cost;
}

StepCost prefill_cost(const Footprint& footprint, const Division& division, std::uint64_t position,
                      std::uint64_t tokens) {
    StepCost cost = step_cost(footprint, division, position, tokens);
    cost.seconds =
        std::max({cost.memory_seconds, cost.compute_seconds, cost.link_seconds, cost.nvme_seconds});
    return cost;
}

Prediction predict(const Footprint& footprint, const Division& division, std::uint64_t position) {
    const MachineFacts& machine = footprint.machine();
    const std::uint64_t chunk = division.grant.chunk_tokens;
    position = std::min(position, division.grant.context_tokens);
    const StepCost decode = decode_cost(footprint, division, position);
    // The chunk whose middle is there.
    const StepCost prefill =
        prefill_cost(footprint, division, position - std::min(position, chunk / 2), chunk);
    Prediction out;
    out.decode_tokens_per_s = 1 / decode.seconds;
    out.prefill_tokens_per_s = static_cast<double>(chunk) / prefill.seconds;
    out.bound = machine.is_cpu() ? "CPU memory" : "device memory";
    double slowest = near_seconds(footprint, decode);
    const auto consider = [&](const char* name, double seconds) {
        if (seconds <= slowest) return;
        slowest = seconds;
        out.bound = name;
    };
    consider(machine.is_cpu() ? "expert copies" : "PCIe", decode.link_seconds);
    consider("NVMe", decode.nvme_seconds);

    auto file_bytes = static_cast<double>(footprint.model().data_bytes);
    const Footprint::ExpertSplit split = footprint.expert_split(division);
    for (std::uint32_t layer = 0; layer < footprint.model().hyper.n_layers; ++layer)
        file_bytes -= static_cast<double>(footprint.slot_bytes(layer)) *
                      static_cast<double>(footprint.model().hyper.n_experts - split.device[layer] -
                                          split.host[layer]);
    if (division.grant.mtp) file_bytes += static_cast<double>(footprint.mtp()->data_bytes);
    out.load_seconds = std::max(0.0, file_bytes) / nvme_rate(machine);
    return out;
}

Result<std::vector<StepPairCost>> costs_of_plan(const Plan& plan, const Model& model,
                                                const Model* mtp, std::span<const StepPair> steps) {
    PLIMSOLL_CHECK(plan.nvme.experts == 0, "experts in the file have no known rate");
    MachineFacts machine{.unified_memory = plan.unified_memory};
    for (const DevicePlan& device : plan.devices) machine.devices.push_back(device.facts);
    if (machine.is_cpu())
        machine.host_memory_bandwidth_bytes_per_s =
            machine.devices.front().memory_bandwidth_bytes_per_s;
    const Footprint footprint(model, plan.grant.mtp ? mtp : nullptr, machine);
    const Result<Division> division = division_of(plan, footprint);
    if (!division) return division.error();
    std::vector<StepPairCost> costs;
    for (const StepPair& step : steps)
        costs.push_back({step.chunk_tokens,
                         prefill_cost(footprint, *division, step.context_tokens - step.chunk_tokens,
                                      step.chunk_tokens),
                         decode_cost(footprint, *division, step.context_tokens)});
    return costs;
}

}  // namespace plimsoll
