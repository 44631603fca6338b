#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::kernels {

/// One GPU as its driver describes it to a process that has made its context there.
struct GpuFacts {
    std::uint32_t index = 0;          // as CUDA counts: "cuda:0"
    std::string name;                 // "NVIDIA H200"
    std::uint32_t compute_major = 0;  // 9 in sm_90
    std::uint32_t compute_minor = 0;  // 0 in sm_90
    /// All that the driver hands out; less than the label on the card.
    std::uint64_t total_bytes = 0;
    /// After the context, all kernels, cuBLAS and a graph of a decode step took theirs.
    std::uint64_t free_bytes = 0;
    std::uint32_t n_multiprocessors = 0;
    double clock_hz = 0;  // the multiprocessors' at boost
    bool shares_host_memory = false;
};

/// The visible GPUs. None and no problem: the driver works and has none to show.
struct GpuList {
    std::vector<GpuFacts> gpus;
    std::string problem;  // why there is no list, for a person; empty where there is one
};

/// Rates of one GPU. All zero where `problem` is not empty.
struct GpuRates {
    double memory_bytes_per_s = 0;          // a copy within the GPU, bytes read and bytes written
    double host_to_device_bytes_per_s = 0;  // from pinned host memory
    double device_to_host_bytes_per_s = 0;  // to pinned host memory
    std::string problem;
};

/// Lists GPUs. Makes a context on each, which takes about a second and some hundred MiB there.
/// Says so in `problem` where the program is built without CUDA or the driver refuses.
[[nodiscard]] GpuList list_gpus();

/// Times copies on one GPU of `list_gpus`: takes up to 1 GiB there and 256 MiB of pinned host
/// memory for the time of the call, about a second. Fewer bytes where the GPU has less room.
[[nodiscard]] GpuRates measure_gpu(std::uint32_t index);

}  // namespace plimsoll::kernels
