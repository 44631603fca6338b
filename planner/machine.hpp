#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

/// One memory a forward step can compute in: a GPU, or the CPU's own memory.
struct DeviceFacts {
    std::string name;                        // "cuda:0", "cpu"
    std::string architecture;                // "sm_90", "cpu"
    std::uint64_t total_bytes = 0;           // as the driver reports it
    std::uint64_t overhead_bytes = 0;        // context, modules, cuBLAS, graphs; see `free_bytes`
    std::uint64_t gemm_workspace_bytes = 0;  // what cuBLAS is given; 0 on the CPU
    double memory_bandwidth_bytes_per_s = 0;
    double pcie_bandwidth_bytes_per_s = 0;  // usable host-to-device rate; 0 where memory is shared
    double fp16_flops_per_s = 0;            // dense tensor rate with float32 sums
    double int8_ops_per_s = 0;
    /// Of the rates above, what decode reaches of the bandwidth and prefill of the tensor rate, by
    /// measurement; 0 where nobody has measured.
    double decode_bandwidth_share = 0;
    double prefill_compute_share = 0;

    bool operator==(const DeviceFacts&) const = default;
};

/// Everything planning may know of a machine. Comes from `configs/devices/*.yaml`, or is measured.
struct MachineFacts {
    std::string name;  // "rtx-4090-24gb", "this machine"
    std::string description;
    bool unified_memory = false;       // the device's memory is the host's: there is no second tier
    std::vector<DeviceFacts> devices;  // at least one
    std::uint64_t host_available_bytes = 0;  // MemAvailable; 0: no host tier
    std::string host_source;  // who said so: "--host-mem", "this machine", a device file
    double host_memory_bandwidth_bytes_per_s = 0;
    double nvme_read_bytes_per_s = 0;
    std::map<std::string, std::string> sources;  // figure -> where it is from

    [[nodiscard]] bool is_cpu() const { return devices.front().architecture == "cpu"; }
    bool operator==(const MachineFacts&) const = default;
};

/// Reads a device file's text; `source` names it in errors. Host memory is left 0: it belongs to
/// the machine the card will sit in, which the caller names.
[[nodiscard]] Result<MachineFacts> parse_machine(const std::string& text,
                                                 const std::string& source);

/// A host arena as the only device, of `memory_bytes`.
[[nodiscard]] MachineFacts cpu_machine(std::uint64_t memory_bytes,
                                       double memory_bandwidth_bytes_per_s);

}  // namespace plimsoll
