#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/machine.hpp"
#include "planner/request.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// The folder that holds `devices/`, `models/` and `profiles/`: PLIMSOLL_CONFIG_DIR where it is
/// set, else share/plimsoll beside the installed program, else the source tree's. An error names
/// all that were tried.
[[nodiscard]] Result<std::string> find_config_dir();

/// Names of the device files of a configuration folder, by total memory and name.
[[nodiscard]] std::vector<std::string> device_names(const std::string& config_dir);

/// Memory that a new program may use: MemAvailable, or what this process's control group leaves
/// where that is less. `root` is "/" but in tests. 0 where the system does not say.
[[nodiscard]] std::uint64_t available_memory_bytes(const std::string& root = "/");

/// All memory of the machine, MemTotal. 0 where the system does not say.
[[nodiscard]] std::uint64_t total_memory_bytes(const std::string& root = "/");

/// GPUs that this machine's NVIDIA driver shows to the process. `root` is "/" but in tests;
/// `visible_devices` is the value of CUDA_VISIBLE_DEVICES, null where unset.
[[nodiscard]] std::size_t count_gpus(const std::string& root, const char* visible_devices);

/// The machine a request means: a named device file or a file's path, with host memory from
/// --host-mem or this machine; "cpu", or nothing named: this machine's memory as the only device.
[[nodiscard]] Result<MachineFacts> machine_of(const Request& request,
                                              const std::string& config_dir);

/// This machine with `devices` as its GPUs, and host memory as above.
[[nodiscard]] MachineFacts this_machine_gpus(const Request& request,
                                             std::vector<DeviceFacts> devices, bool unified_memory);

}  // namespace plimsoll
