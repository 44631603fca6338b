#include "planner/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

constexpr double kRateMax = 1e18;
constexpr double kShareMin = 0.001;
constexpr std::size_t kDevicesMax = 64;

Result<DeviceFacts> read_device(const YamlNode& node, const std::string& source,
                                std::size_t index) {
    DeviceFacts device;
    YamlReader reader(node, source, fmt::format("devices[{}]", index));
    reader.require("name").require("total_bytes").require("memory_bandwidth_bytes_per_s");
    reader.text("name", device.name)
        .text("architecture", device.architecture)
        .size("total_bytes", device.total_bytes)
        .size("overhead_bytes", device.overhead_bytes)
        .size("gemm_workspace_bytes", device.gemm_workspace_bytes)
        .real("memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s, 1, kRateMax)
        .real("pcie_bandwidth_bytes_per_s", device.pcie_bandwidth_bytes_per_s, 0, kRateMax)
        .real("fp16_flops_per_s", device.fp16_flops_per_s, 0, kRateMax)
        .real("int8_ops_per_s", device.int8_ops_per_s, 0, kRateMax)
        .real("decode_bandwidth_share", device.decode_bandwidth_share, kShareMin, 1)
        .real("prefill_compute_share", device.prefill_compute_share, kShareMin, 1);
    if (const Status done = reader.finish(); !done) return done.error();
    return device;
}

/// Reads `key: {rate_key: number}`, the form of the host and nvme entries.
Status read_rate(YamlReader& parent, std::string_view key, std::string_view rate_key, double& out) {
    const YamlNode* node = parent.child(key);
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), std::string(key));
    reader.real(rate_key, out, 0, kRateMax);
    return reader.finish();
}

}  // namespace

Result<MachineFacts> parse_machine(const std::string& text, const std::string& source) {
    const Result<YamlNode> root = parse_yaml(text, source);
    if (!root) return root.error();
    MachineFacts machine;
    YamlReader reader(*root, source, "device file");
    reader.require("name").require("devices");
    reader.text("name", machine.name)
        .text("description", machine.description)
        .boolean("unified_memory", machine.unified_memory);
    if (const YamlNode* devices = reader.child("devices"); devices != nullptr) {
        if (devices->kind != YamlNode::Kind::sequence || devices->items.empty() ||
            devices->items.size() > kDevicesMax)
            return yaml_error(source, devices->line,
                              fmt::format("devices must list 1 to {} devices", kDevicesMax));
        for (const YamlNode& item : devices->items) {
            Result<DeviceFacts> device = read_device(item, source, machine.devices.size());
            if (!device) return device.error();
            const auto same = [&](const DeviceFacts& other) { return other.name == device->name; };
            if (std::any_of(machine.devices.begin(), machine.devices.end(), same))
                return yaml_error(source, item.line,
                                  fmt::format("device '{}' is listed twice", device->name));
            machine.devices.push_back(std::move(*device));
        }
    }
    const Status host = read_rate(reader, "host", "memory_bandwidth_bytes_per_s",
                                  machine.host_memory_bandwidth_bytes_per_s);
    if (!host) return host.error();
    const Status nvme =
        read_rate(reader, "nvme", "read_bytes_per_s", machine.nvme_read_bytes_per_s);
    if (!nvme) return nvme.error();
    if (const YamlNode* sources = reader.child("source"); sources != nullptr)
        for (const auto& [figure, origin] : sources->entries)
            machine.sources[figure] = origin.scalar;
    if (const Status done = reader.finish(); !done) return done.error();
    return machine;
}

MachineFacts cpu_machine(std::uint64_t memory_bytes, double memory_bandwidth_bytes_per_s) {
    MachineFacts machine;
    machine.name = "cpu";
    machine.description = "this machine's processor and memory";
    machine.devices.push_back({.name = "cpu",
                               .architecture = "cpu",
                               .total_bytes = memory_bytes,
                               .memory_bandwidth_bytes_per_s = memory_bandwidth_bytes_per_s});
    machine.host_memory_bandwidth_bytes_per_s = memory_bandwidth_bytes_per_s;
    return machine;
}

}  // namespace plimsoll
