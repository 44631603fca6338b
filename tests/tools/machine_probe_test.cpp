#include "tools/machine_probe.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "planner/units.hpp"
#include "tools/machine_file.hpp"

namespace plimsoll {
namespace {

MachineFacts parsed(const std::string& text) {
    const Result<MachineFacts> machine = parse_machine(text, "measured.yaml");
    EXPECT_TRUE(machine.ok()) << (machine.ok() ? "" : machine.error().message) << "\n" << text;
    return machine.ok() ? *machine : MachineFacts{};
}

TEST(MachineFile, ReadsBackAsTheSameFacts) {
    MachineFacts machine{.name = "two: cards",
                         .description = "it's \"quoted\" # and more",
                         .host_memory_bandwidth_bytes_per_s = 34.7e9,
                         .nvme_read_bytes_per_s = 2.38e9,
                         .sources = {{"total_bytes", "measured: by the driver"}}};
    for (const char* name : {"cuda:0", "cuda:1"})
        machine.devices.push_back({.name = name,
                                   .architecture = "sm_90",
                                   .total_bytes = 143156 * kMiB + 1,
                                   .overhead_bytes = 526 * kMiB,
                                   .gemm_workspace_bytes = 32 * kMiB,
                                   .memory_bandwidth_bytes_per_s = 4.3e12,
                                   .pcie_bandwidth_bytes_per_s = 5.5e10,
                                   .fp16_flops_per_s = 989.4e12,
                                   .int8_ops_per_s = 1978.9e12});
    EXPECT_EQ(parsed(machine_yaml(machine)), machine);
}

TEST(MachineProbe, MeasuresThisMachineAndWritesAFileThatReadsBack) {
    const Result<MachineProbe> probe = probe_machine("here", testing::TempDir());
    ASSERT_TRUE(probe.ok()) << probe.error().message;
    const MachineFacts& machine = probe->machine;
    EXPECT_EQ(machine.name, "here");
    ASSERT_FALSE(machine.devices.empty());
    for (const DeviceFacts& device : machine.devices) {
        EXPECT_GT(device.total_bytes, device.overhead_bytes);
        EXPECT_GT(device.memory_bandwidth_bytes_per_s, 1e8);
    }
    EXPECT_GT(machine.host_memory_bandwidth_bytes_per_s, 1e8);
    EXPECT_GT(machine.nvme_read_bytes_per_s, 1e6);
    EXPECT_GE(probe->rows.size(), 3u);
    EXPECT_EQ(parsed(machine_yaml(machine)), machine);
}

TEST(MachineProbe, NamesAFolderItCannotMeasure) {
    const Result<MachineProbe> probe = probe_machine("here", "/proc/no such folder");
    ASSERT_FALSE(probe.ok());
    EXPECT_NE(probe.error().message.find("/proc/no such folder"), std::string::npos)
        << probe.error().message;
}

TEST(MachineProbe, GivesTheSharedMemoryOfAGpuNoLink) {
    const DeviceFacts device = device_of({.index = 0,
                                          .name = "NVIDIA GB10",
                                          .compute_major = 12,
                                          .compute_minor = 1,
                                          .total_bytes = 120 * kGiB,
                                          .free_bytes = 100 * kGiB,
                                          .n_multiprocessors = 48,
                                          .clock_hz = 2.4e9,
                                          .shares_host_memory = true},
                                         {.memory_bytes_per_s = 250e9,
                                          .host_to_device_bytes_per_s = 60e9,
                                          .device_to_host_bytes_per_s = 60e9});
    EXPECT_EQ(device.pcie_bandwidth_bytes_per_s, 0);
    EXPECT_EQ(device.overhead_bytes, 20 * kGiB);
}

TEST(MachineProbe, KnowsTheTensorRatesOfTheCardsThatHaveDeviceFiles) {
    struct Card {
        const char* file;
        kernels::GpuFacts gpu;
    };
    const Card kCards[] = {
        {"a100-80gb",
         {.name = "NVIDIA A100-SXM4-80GB",
          .compute_major = 8,
          .compute_minor = 0,
          .n_multiprocessors = 108,
          .clock_hz = 1.41e9}},
        {"rtx-3090-24gb",
         {.name = "NVIDIA GeForce RTX 3090",
          .compute_major = 8,
          .compute_minor = 6,
          .n_multiprocessors = 82,
          .clock_hz = 1.695e9}},
        {"rtx-a6000-48gb",
         {.name = "NVIDIA RTX A6000",
          .compute_major = 8,
          .compute_minor = 6,
          .n_multiprocessors = 84,
          .clock_hz = 1.8e9}},
        {"rtx-4090-24gb",
         {.name = "NVIDIA GeForce RTX 4090",
          .compute_major = 8,
          .compute_minor = 9,
          .n_multiprocessors = 128,
          .clock_hz = 2.52e9}},
        {"h200-141gb",
         {.name = "NVIDIA H200",
          .compute_major = 9,
          .compute_minor = 0,
          .n_multiprocessors = 132,
          .clock_hz = 1.98e9}},
        {"rtx-5090-32gb",
         {.name = "NVIDIA GeForce RTX 5090",
          .compute_major = 12,
          .compute_minor = 0,
          .n_multiprocessors = 170,
          .clock_hz = 2.407e9}},
        {"rtx-pro-6000-96gb",
         {.name = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
          .compute_major = 12,
          .compute_minor = 0,
          .n_multiprocessors = 188,
          .clock_hz = 2.617e9}},
    };
    for (const Card& card : kCards) {
        SCOPED_TRACE(card.file);
        std::ifstream file(PLIMSOLL_CONFIGS "/devices/" + std::string(card.file) + ".yaml");
        std::ostringstream text;
        text << file.rdbuf();
        const DeviceFacts known = parsed(text.str()).devices.at(0);
        const DeviceFacts device = device_of(card.gpu, {});
        // Drivers report clocks up to a tenth above the boost clock of a data sheet.
        EXPECT_NEAR(device.fp16_flops_per_s / known.fp16_flops_per_s, 1, 0.1);
        EXPECT_NEAR(device.int8_ops_per_s / known.int8_ops_per_s, 1, 0.1);
        EXPECT_EQ(device.architecture, known.architecture);
        EXPECT_EQ(device.gemm_workspace_bytes, known.gemm_workspace_bytes);
    }
}

}  // namespace
}  // namespace plimsoll
