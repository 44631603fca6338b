#include "tools/machine_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "kernels/workers.hpp"
#include "offload/disk_probe.hpp"
#include "planner/units.hpp"
#include "tools/environment.hpp"

namespace plimsoll {
namespace {

/// Past the last-level cache of any machine, where there is room for it.
constexpr std::uint64_t kMemoryBytesMax = kGiB;
constexpr std::uint64_t kMemoryGrainWords = 1 << 17;
constexpr int kMemoryPasses = 6;
/// Share of available memory that the processor's arena may take, as for `--device cpu`.
constexpr std::uint64_t kCpuMemoryPercent = 80;

/// What a multiprocessor's tensor cores do in a cycle: dense operations with 16-bit floats and
/// 32-bit sums, and with 8-bit integers. From the peak rates, core counts and boost clocks of
/// NVIDIA's data sheets and whitepapers; GeForce cards run 32-bit sums at half rate. The first row
/// that matches holds.
struct TensorRate {
    std::uint32_t compute_major;
    std::uint32_t compute_minor;
    const char* product;  // a word of the name; "" matches any
    double fp16_per_cycle;
    double int8_per_cycle;
};
constexpr TensorRate kTensorRates[] = {
    {8, 0, "", 2048, 4096},         // A100: 312e12 by 108 at 1.41 GHz
    {8, 6, "GeForce", 512, 2048},   // RTX 3090: 71e12 by 82 at 1.695 GHz
    {8, 6, "", 1024, 2048},         // RTX A6000: 154.8e12 by 84 at 1.8 GHz
    {8, 9, "GeForce", 512, 2048},   // RTX 4090: 165.2e12 by 128 at 2.52 GHz
    {8, 9, "", 1024, 2048},         // L40S: 362e12 by 142 at 2.52 GHz
    {9, 0, "", 4096, 8192},         // H200: 989.4e12 by 132 at 1.83 GHz
    {10, 0, "", 8192, 16384},       // B200: 2.25e15 by 148 at 1.86 GHz
    {12, 0, "GeForce", 512, 2048},  // RTX 5090: 209.5e12 by 170 at 2.407 GHz
    {12, 0, "", 1024, 2048},        // RTX PRO 6000: 503.8e12 by 188 at 2.617 GHz
    {12, 1, "", 1024, 2048},        // GB10: as the RTX PRO 6000, estimated
};

/// The workspace that cuBLAS's documentation of cublasSetWorkspace recommends.
std::uint64_t gemm_workspace_bytes(std::uint32_t compute_major) {
    if (compute_major == 9 || compute_major == 10) return 32 * kMiB;
    if (compute_major == 12) return 12 * kMiB;
    return 4 * kMiB;
}

/// Measurements repeat to about two digits; more would only look exact.
double rounded_rate(double per_second) {
    constexpr double kStep = 1e7;
    return std::round(per_second / kStep) * kStep;
}

std::string giga_per_s(double bytes_per_s) { return fmt::format("{:.2f} GB/s", bytes_per_s / 1e9); }

/// Reads every word; the sum keeps the compiler from leaving that out. Four sums, so that additions
/// do not wait for each other.
std::uint64_t read_words(const std::uint64_t* words, std::uint64_t count) {
    std::uint64_t sums[4] = {};
    std::uint64_t at = 0;
    for (; at + 4 <= count; at += 4)
        for (std::uint64_t lane = 0; lane < 4; ++lane) sums[lane] += words[at + lane];
    for (; at < count; ++at) sums[0] += words[at];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

void add_memory(MachineProbe& probe) {
    const std::uint32_t n_threads = std::max(1u, std::thread::hardware_concurrency());
    const std::uint64_t size_bytes = std::min(kMemoryBytesMax, available_memory_bytes() / 4);
    const double rate = rounded_rate(measure_memory_bytes_per_s(size_bytes, n_threads));
    probe.machine.host_memory_bandwidth_bytes_per_s = rate;
    const std::string how =
        fmt::format("{} read by {} threads", format_bytes(size_bytes), n_threads);
    probe.machine.sources["host_memory_bandwidth_bytes_per_s"] = "measured: " + how;
    probe.rows.push_back({"memory", giga_per_s(rate), how});
}

Status add_disk(MachineProbe& probe, const std::string& folder) {
    const Result<DiskFigure> disk = measure_disk_of(folder, offload::DiskProbe().span_bytes);
    if (!disk) return disk.error();
    probe.machine.nvme_read_bytes_per_s = disk->read_bytes_per_s;
    probe.machine.sources["nvme_read_bytes_per_s"] = "measured: " + disk->how;
    probe.rows.push_back({"disk " + folder, giga_per_s(disk->read_bytes_per_s), disk->how});
    return ok_status();
}

void add_gpu_rows(MachineProbe& probe, const kernels::GpuFacts& gpu, const DeviceFacts& device,
                  const kernels::GpuRates& rates) {
    probe.rows.push_back({device.name, format_mib(device.total_bytes),
                          fmt::format("{}, {}, {} taken before anything is loaded", gpu.name,
                                      device.architecture, format_mib(device.overhead_bytes))});
    if (!rates.problem.empty()) {
        probe.rows.push_back({device.name + " memory", "none", rates.problem});
        return;
    }
    probe.rows.push_back({device.name + " memory", giga_per_s(rates.memory_bytes_per_s),
                          "copied within, bytes read and written"});
    probe.rows.push_back({device.name + " from host", giga_per_s(rates.host_to_device_bytes_per_s),
                          "from pinned memory"});
    probe.rows.push_back({device.name + " to host", giga_per_s(rates.device_to_host_bytes_per_s),
                          "to pinned memory"});
}

void add_gpus(MachineProbe& probe) {
    const kernels::GpuList list = kernels::list_gpus();
    if (list.gpus.empty()) {
        probe.rows.push_back({"GPU", "none", list.problem.empty() ? "none found" : list.problem});
        return;
    }
    for (const kernels::GpuFacts& gpu : list.gpus) {
        const kernels::GpuRates rates = kernels::measure_gpu(gpu.index);
        probe.machine.devices.push_back(device_of(gpu, rates));
        probe.machine.unified_memory |= gpu.shares_host_memory;
        add_gpu_rows(probe, gpu, probe.machine.devices.back(), rates);
    }
    std::map<std::string, std::string>& sources = probe.machine.sources;
    sources["total_bytes"] = "measured: as the driver reports it";
    sources["overhead_bytes"] =
        "measured: total less free with a context, all kernels and a decode graph; holds what "
        "other programs had then";
    sources["gemm_workspace_bytes"] = "cuBLAS documentation, cublasSetWorkspace";
    sources["memory_bandwidth_bytes_per_s"] = "measured: a copy within the card";
    sources["pcie_bandwidth_bytes_per_s"] = "measured: copies from pinned memory";
    sources["fp16_flops_per_s"] = "estimated: multiprocessors, clock and NVIDIA's peak per cycle";
    sources["int8_ops_per_s"] = "estimated: multiprocessors, clock and NVIDIA's peak per cycle";
}

/// The processor as the only device: what the system and other programs hold is its overhead, and a
/// share of the rest stays theirs.
void add_processor(MachineProbe& probe) {
    const std::uint64_t available_bytes = available_memory_bytes();
    const std::uint64_t total_bytes = std::max(total_memory_bytes(), available_bytes);
    const std::uint64_t usable_bytes = available_bytes / 100 * kCpuMemoryPercent;
    const double bandwidth = probe.machine.host_memory_bandwidth_bytes_per_s;
    probe.machine.unified_memory = true;
    probe.machine.devices.push_back({.name = "cpu",
                                     .architecture = "cpu",
                                     .total_bytes = total_bytes,
                                     .overhead_bytes = total_bytes - usable_bytes,
                                     .memory_bandwidth_bytes_per_s = bandwidth});
    std::map<std::string, std::string>& sources = probe.machine.sources;
    sources["total_bytes"] = "measured: MemTotal";
    sources["overhead_bytes"] = "measured: MemTotal less 80 % of MemAvailable";
    sources["memory_bandwidth_bytes_per_s"] = sources["host_memory_bandwidth_bytes_per_s"];
    probe.rows.push_back({"cpu", format_mib(total_bytes),
                          fmt::format("of which {} may be planned", format_mib(usable_bytes))});
}

}  // namespace

double measure_memory_bytes_per_s(std::uint64_t size_bytes, std::uint32_t n_threads) {
    const std::vector<std::uint64_t> words(size_bytes / sizeof(std::uint64_t), 1);
    const kernels::Workers workers(n_threads);
    double best_seconds = std::numeric_limits<double>::max();
    // One sum a grain, so that no two threads write to the same.
    std::vector<std::uint64_t> sums(ceil_div(words.size(), kMemoryGrainWords) + 1);
    for (int pass = 0; pass < kMemoryPasses; ++pass) {
        const auto start = std::chrono::steady_clock::now();
        workers.parallel_for(
            words.size(), kMemoryGrainWords, [&](std::uint64_t first, std::uint64_t last) {
                sums[first / kMemoryGrainWords] += read_words(words.data() + first, last - first);
            });
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        best_seconds = std::min(best_seconds, seconds.count());
    }
    return static_cast<double>(size_bytes) / best_seconds;
}

DeviceFacts device_of(const kernels::GpuFacts& gpu, const kernels::GpuRates& rates) {
    DeviceFacts device{
        .name = fmt::format("cuda:{}", gpu.index),
        .architecture = fmt::format("sm_{}{}", gpu.compute_major, gpu.compute_minor),
        .total_bytes = gpu.total_bytes,
        .overhead_bytes = saturating_sub(gpu.total_bytes, gpu.free_bytes),
        .gemm_workspace_bytes = gemm_workspace_bytes(gpu.compute_major),
        .memory_bandwidth_bytes_per_s = rounded_rate(rates.memory_bytes_per_s),
        .pcie_bandwidth_bytes_per_s =
            gpu.shares_host_memory ? 0 : rounded_rate(rates.host_to_device_bytes_per_s)};
    for (const TensorRate& row : kTensorRates) {
        if (row.compute_major != gpu.compute_major || row.compute_minor != gpu.compute_minor ||
            gpu.name.find(row.product) == std::string::npos)
            continue;
        const double cycles_per_s = gpu.n_multiprocessors * gpu.clock_hz;
        device.fp16_flops_per_s = std::round(cycles_per_s * row.fp16_per_cycle);
        device.int8_ops_per_s = std::round(cycles_per_s * row.int8_per_cycle);
        break;
    }
    return device;
}

Result<DiskFigure> measure_disk_of(const std::string& folder, std::uint64_t span_bytes) {
    const offload::DiskProbe asked{.path = folder, .span_bytes = span_bytes};
    const offload::IoResult<offload::DiskRate> rate = offload::measure_disk(asked);
    if (!rate) return Error{ErrorKind::io, "disk: " + offload::describe(rate.error())};
    DiskFigure disk{.read_bytes_per_s = rounded_rate(rate->read_bytes_per_s)};
    disk.how = fmt::format("reads of {}, {} at a time, {}, {}", format_bytes(asked.block_bytes),
                           asked.depth, rate->ring ? "io_uring" : "threads",
                           rate->direct ? "O_DIRECT" : "through the page cache");
    if (!rate->fallback.empty()) disk.how += fmt::format(" ({})", rate->fallback);
    return disk;
}

VisibleGpus visible_gpus() {
    const kernels::GpuList list = kernels::list_gpus();
    VisibleGpus visible{.problem = list.problem};
    for (const kernels::GpuFacts& gpu : list.gpus) {
        visible.devices.push_back(device_of(gpu, kernels::measure_gpu(gpu.index)));
        visible.unified_memory |= gpu.shares_host_memory;
    }
    return visible;
}

Result<MachineProbe> probe_machine(const std::string& name, const std::string& folder) {
    MachineProbe probe;
    probe.machine.name = name;
    add_memory(probe);
    const Status disk = add_disk(probe, folder);
    if (!disk) return disk.error();
    add_gpus(probe);
    if (probe.machine.devices.empty()) add_processor(probe);
    probe.machine.description =
        fmt::format("measured by plimsoll probe, {} device{}", probe.machine.devices.size(),
                    probe.machine.devices.size() == 1 ? "" : "s");
    return probe;
}

}  // namespace plimsoll
