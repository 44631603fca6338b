#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/device_facts.hpp"
#include "planner/machine.hpp"

namespace plimsoll {

/// One line of a probe's table: what was measured, its figure, and how.
struct ProbeRow {
    std::string subject;  // "memory", "disk /models", "cuda:0 copy"
    std::string figure;   // "21.3 GB/s"; "none" where there is none
    std::string how;      // "read by 2 threads", or why there is no figure
};

/// This machine as measured, as facts to plan with and as rows to read.
struct MachineProbe {
    MachineFacts machine;
    std::vector<ProbeRow> rows;
};

/// Measures memory, the disk that holds `folder` and the GPUs; about five seconds, 1 GiB of memory
/// and as much of the disk. Without GPUs the only device is the processor with its memory. Fails
/// where the disk cannot be measured.
[[nodiscard]] Result<MachineProbe> probe_machine(const std::string& name,
                                                 const std::string& folder);

/// How fast the disk of a folder is read, and how that was measured.
struct DiskFigure {
    double read_bytes_per_s = 0;
    std::string how;
};
/// Writes, reads and removes a scratch file of `span_bytes`. An error, kind io, where it cannot.
[[nodiscard]] Result<DiskFigure> measure_disk_of(const std::string& folder,
                                                 std::uint64_t span_bytes);

/// The GPUs that this process sees, measured; about two seconds for one.
struct VisibleGpus {
    std::vector<DeviceFacts> devices;  // none where there are none
    bool unified_memory = false;
    std::string problem;  // why there are none although the machine may have some; empty otherwise
};
[[nodiscard]] VisibleGpus visible_gpus();

/// Bytes per second that `n_threads` read from a buffer of `size_bytes`, the best of several
/// passes.
[[nodiscard]] double measure_memory_bytes_per_s(std::uint64_t size_bytes, std::uint32_t n_threads);

/// A GPU's facts for planning, from what its driver says and what was measured. Tensor rates follow
/// from multiprocessors, clock and architecture; 0 for an architecture that is not known.
[[nodiscard]] DeviceFacts device_of(const kernels::GpuFacts& gpu, const kernels::GpuRates& rates);

}  // namespace plimsoll
