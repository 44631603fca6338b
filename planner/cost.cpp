#include "planner/cost.hpp"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

/// Shares of the datasheet rates that a step is expected to reach. Planning values: what well-made
/// engines publish for batch 1 (60 to 80 % of bandwidth) and quantised prefill (a third to a half
/// of the tensor rate), taken low. They are replaced by measurements where a device file carries
/// them.
constexpr double kDecodeBandwidthShare = 0.6;
constexpr double kPrefillComputeShare = 0.35;
constexpr double kLinkShare = 0.9;

/// An element decoded to F16 and read back costs this much traffic a chunk where no F16 copy is
/// kept.
constexpr double kDecodedElementBytes = 4;

/// Rates assumed where a device file is silent.
constexpr double kNvmeBytesPerS = 3e9;
constexpr double kCpuFlopsPerBandwidthByte =
    8;  // 8-bit dot products on a core per byte it can stream

double elements_of(const Tensor& tensor) {
    double elements = 1;
    for (const std::uint64_t dim : tensor.dims) elements *= static_cast<double>(dim);
    return elements;
}

bool is_routed(TensorRole role) {
    return role == TensorRole::ffn_gate_exps || role == TensorRole::ffn_up_exps ||
           role == TensorRole::ffn_down_exps;
}

/// A layer's dense weights as a token reads them: the hash table gives one row, the indexer's query
/// weights only work once there is something to choose.
struct DenseRead {
    double bytes = 0;
    double matrix_elements = 0;
};

DenseRead dense_read(const Model& model, std::int32_t layer, bool indexer_works) {
    DenseRead read;
    for (std::size_t index = 0; index < static_cast<std::size_t>(TensorRole::count); ++index) {
        const auto role = static_cast<TensorRole>(index);
        const Tensor* tensor = is_routed(role) ? nullptr : model.find(role, layer);
        if (tensor == nullptr || role == TensorRole::ffn_gate_tid2eid) continue;
        const bool indexer_query =
            role == TensorRole::indexer_attn_q_b || role == TensorRole::indexer_proj;
        if (indexer_query && !indexer_works) continue;
        read.bytes += static_cast<double>(tensor->size_bytes);
        if (tensor->dims.size() >= 2) read.matrix_elements += elements_of(*tensor);
    }
    return read;
}

/// Cached rows that one token at `position` reads in a layer, and the arithmetic on them.
struct CacheRead {
    double bytes = 0;
    double flops = 0;
};

CacheRead cache_read(const Hyperparameters& hyper, KvFormat format, std::uint32_t ratio,
                     double position) {
    const double window = std::min<double>(hyper.sliding_window_tokens, position);
    const double visible = ratio == 0 ? 0 : std::floor(position / ratio);
    const double chosen = ratio == 4 ? std::min<double>(visible, hyper.indexer_top_k) : visible;
    const double row_bytes =
        static_cast<double>(kv_rows_bytes(format, 1024, hyper.head_dim, hyper.rope_dim)) / 1024;
    CacheRead read;
    read.bytes = (window + chosen) * row_bytes;
    read.flops = 4.0 * hyper.n_heads * hyper.head_dim * (window + chosen);
    if (ratio == 4 && visible > hyper.indexer_top_k) {
        read.bytes +=
            visible *
            static_cast<double>(indexer_rows_bytes(format, 1024, hyper.indexer_head_dim)) / 1024;
        read.flops += 2.0 * hyper.indexer_n_heads * hyper.indexer_head_dim * visible;
    }
    return read;
}

double link_rate(const MachineFacts& machine, const DeviceFacts& device) {
    if (machine.is_cpu())
        return machine.host_memory_bandwidth_bytes_per_s / 2;  // read and write one memory
    return device.pcie_bandwidth_bytes_per_s > 0
               ? device.pcie_bandwidth_bytes_per_s * kLinkShare
               : device.memory_bandwidth_bytes_per_s * kDecodeBandwidthShare;
}

double nvme_rate(const MachineFacts& machine) {
    return machine.nvme_read_bytes_per_s > 0 ? machine.nvme_read_bytes_per_s * kLinkShare
                                             : kNvmeBytesPerS;
}

double flop_rate(const DeviceFacts& device) {
    return device.fp16_flops_per_s > 0
               ? device.fp16_flops_per_s * kPrefillComputeShare
               : device.memory_bandwidth_bytes_per_s * kCpuFlopsPerBandwidthByte;
}

double memory_rate(const DeviceFacts& device) {
    return std::max(1.0, device.memory_bandwidth_bytes_per_s * kDecodeBandwidthShare);
}

std::size_t device_of(const Division& division, std::uint32_t layer) {
    std::size_t device = 0;
    while (layer >= division.devices[device].layer_last) ++device;
    return device;
}

double expert_elements(const Model& model, std::int32_t layer) {
    double elements = 0;
    for (const TensorRole role :
         {TensorRole::ffn_gate_exps, TensorRole::ffn_up_exps, TensorRole::ffn_down_exps})
        elements += elements_of(*model.find(role, layer));
    return elements / model.hyper.n_experts;
}

/// What one layer (or the output head) moves and computes.
struct LayerCost {
    double memory_bytes = 0;
    double link_bytes = 0;
    double nvme_bytes = 0;
    double flops = 0;
};

/// Adds it to a step, with the seconds it takes at the rates of the device it runs on.
void add_layer(StepCost& cost, const LayerCost& layer, const MachineFacts& machine,
               const DeviceFacts& device) {
    cost.memory_bytes += layer.memory_bytes;
    cost.link_bytes += layer.link_bytes;
    cost.nvme_bytes += layer.nvme_bytes;
    cost.flops += layer.flops;
    cost.memory_seconds += layer.memory_bytes / memory_rate(device);
    cost.link_seconds += layer.link_bytes / std::max(1.0, link_rate(machine, device));
    cost.nvme_seconds += layer.nvme_bytes / nvme_rate(machine);
    cost.compute_seconds += layer.flops / std::max(1.0, flop_rate(device));
}

}  // namespace

StepCost decode_cost(const Footprint& footprint, const Division& division, std::uint64_t position) {
    const Model& model = footprint.model();
    const Hyperparameters& hyper = model.hyper;
    const MachineFacts& machine = footprint.machine();
    const Footprint::ExpertSplit split = footprint.expert_split(division);
    const bool indexer_works = position / 4 > hyper.indexer_top_k;
    StepCost cost;
    for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer) {
        const auto index = static_cast<std::int32_t>(layer);
        const DenseRead dense = dense_read(model, index, indexer_works);
        const CacheRead cache =
            cache_read(hyper, division.grant.kv_format, hyper.compress_ratios[layer],
                       static_cast<double>(position));
        const double used_bytes =
            static_cast<double>(footprint.slot_bytes(layer)) * hyper.n_experts_used;
        const double host_share = static_cast<double>(split.host[layer]) / hyper.n_experts;
        const double device_share = static_cast<double>(split.device[layer]) / hyper.n_experts;
        LayerCost here;
        here.memory_bytes = dense.bytes + cache.bytes + used_bytes;
        here.link_bytes = used_bytes * host_share;
        here.nvme_bytes = used_bytes * std::max(0.0, 1 - host_share - device_share);
        if (layer < division.grant.dense_streamed_layers) here.link_bytes += dense.bytes;
        here.flops =
            2 * (dense.matrix_elements + hyper.n_experts_used * expert_elements(model, index)) +
            cache.flops;
        add_layer(cost, here, machine, machine.devices[device_of(division, layer)]);
    }
    LayerCost head;
    const Tensor& output = *model.find(TensorRole::output);
    head.memory_bytes = static_cast<double>(output.size_bytes);
    head.link_bytes = division.grant.head_streamed ? head.memory_bytes : 0;
    head.flops = 2 * elements_of(output);
    add_layer(cost, head, machine, machine.devices.back());
    return cost;
}

StepCost prefill_cost(const Footprint& footprint, const Division& division) {
    const Model& model = footprint.model();
    const Hyperparameters& hyper = model.hyper;
    const MachineFacts& machine = footprint.machine();
    const Footprint::ExpertSplit split = footprint.expert_split(division);
    const auto tokens = static_cast<double>(division.grant.chunk_tokens);
    // With uniform routing a chunk of T tokens misses an expert with probability (1 - k/E)^T.
    const double touched =
        1 - std::pow(1 - static_cast<double>(hyper.n_experts_used) / hyper.n_experts, tokens);
    std::vector<double> cached_elements(hyper.n_layers);
    for (const DeviceShare& share : division.devices) {
        const std::vector<Fp16Candidate> candidates = footprint.fp16_candidates_of(share);
        for (std::uint64_t at = 0; at < share.fp16_tensors; ++at)
            cached_elements[static_cast<std::size_t>(candidates[at].layer)] +=
                static_cast<double>(candidates[at].size_bytes) / 2;
    }
    StepCost cost;
    for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer) {
        const auto index = static_cast<std::int32_t>(layer);
        const DenseRead dense = dense_read(model, index, true);
        const CacheRead cache =
            cache_read(hyper, division.grant.kv_format, hyper.compress_ratios[layer],
                       static_cast<double>(kDecodePosition));
        const auto slot = static_cast<double>(footprint.slot_bytes(layer));
        const double used = touched * hyper.n_experts;
        const auto host = static_cast<double>(split.host[layer]);
        const double elsewhere = hyper.n_experts - host - static_cast<double>(split.device[layer]);
        LayerCost here;
        here.memory_bytes =
            dense.bytes + used * slot +
            std::max(0.0, dense.matrix_elements - cached_elements[layer]) * kDecodedElementBytes;
        here.link_bytes = host * touched * slot;
        here.nvme_bytes = std::max(0.0, elsewhere) * touched * slot;
        if (layer < division.grant.dense_streamed_layers) here.link_bytes += dense.bytes;
        here.flops =
            tokens *
            (2 * (dense.matrix_elements + hyper.n_experts_used * expert_elements(model, index)) +
             cache.flops);
        add_layer(cost, here, machine, machine.devices[device_of(division, layer)]);
    }
    return cost;
}

Prediction predict(const Footprint& footprint, const Division& division) {
    const MachineFacts& machine = footprint.machine();
    const std::uint64_t position = std::min(kDecodePosition, division.grant.context_tokens);
    const StepCost decode = decode_cost(footprint, division, position);
    const StepCost prefill = prefill_cost(footprint, division);
    Prediction out;
    const double near_seconds =
        std::max(decode.memory_seconds, machine.is_cpu() ? decode.compute_seconds : 0.0);
    out.decode_tokens_per_s = 1 / (near_seconds + decode.link_seconds + decode.nvme_seconds);
    const double chunk_seconds = std::max({prefill.memory_seconds, prefill.compute_seconds,
                                           prefill.link_seconds, prefill.nvme_seconds});
    out.prefill_tokens_per_s = static_cast<double>(division.grant.chunk_tokens) / chunk_seconds;
    out.bound = machine.is_cpu() ? "CPU memory" : "device memory";
    double slowest = near_seconds;
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

}  // namespace plimsoll
