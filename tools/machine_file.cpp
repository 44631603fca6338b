#include "tools/machine_file.hpp"

#include <fmt/format.h>

#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

std::string device_yaml(const DeviceFacts& device) {
    return fmt::format(
        "  - name: {}\n"
        "    architecture: {}\n"
        "    total_bytes: {}\n"
        "    overhead_bytes: {}\n"
        "    gemm_workspace_bytes: {}\n"
        "    memory_bandwidth_bytes_per_s: {:.0f}\n"
        "    pcie_bandwidth_bytes_per_s: {:.0f}\n"
        "    fp16_flops_per_s: {:.0f}\n"
        "    int8_ops_per_s: {:.0f}\n",
        yaml_scalar(device.name), yaml_scalar(device.architecture), device.total_bytes,
        device.overhead_bytes, device.gemm_workspace_bytes, device.memory_bandwidth_bytes_per_s,
        device.pcie_bandwidth_bytes_per_s, device.fp16_flops_per_s, device.int8_ops_per_s);
}

}  // namespace

std::string machine_yaml(const MachineFacts& machine) {
    std::string out = fmt::format("name: {}\ndescription: {}\nunified_memory: {}\ndevices:\n",
                                  yaml_scalar(machine.name), yaml_scalar(machine.description),
                                  machine.unified_memory);
    for (const DeviceFacts& device : machine.devices) out += device_yaml(device);
    out += fmt::format(
        "host:\n  memory_bandwidth_bytes_per_s: {:.0f}\n"
        "nvme:\n  read_bytes_per_s: {:.0f}\n",
        machine.host_memory_bandwidth_bytes_per_s, machine.nvme_read_bytes_per_s);
    if (!machine.sources.empty()) out += "source:\n";
    for (const auto& [figure, origin] : machine.sources)
        out += fmt::format("  {}: {}\n", figure, yaml_scalar(origin));
    return out;
}

}  // namespace plimsoll
