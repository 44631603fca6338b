#include "kernels/cuda/device_facts.hpp"

#include <gtest/gtest.h>

namespace plimsoll::kernels {
namespace {

/// The first GPU, or none, with the reason why.
GpuList gpus_or_reason() {
    GpuList list = list_gpus();
    if (list.gpus.empty() && list.problem.empty()) list.problem = "no GPU is visible";
    return list;
}

TEST(DeviceFacts, DescribesEveryVisibleGpu) {
    const GpuList list = gpus_or_reason();
    if (list.gpus.empty()) GTEST_SKIP() << list.problem;
    for (std::size_t at = 0; at < list.gpus.size(); ++at) {
        const GpuFacts& gpu = list.gpus[at];
        EXPECT_EQ(gpu.index, at);
        EXPECT_FALSE(gpu.name.empty());
        EXPECT_GE(gpu.compute_major, 7u);
        EXPECT_GT(gpu.n_multiprocessors, 0u);
        EXPECT_GT(gpu.clock_hz, 500e6);
        EXPECT_GT(gpu.free_bytes, 0u);
        // A context takes memory, so free is below total from the first call on.
        EXPECT_LT(gpu.free_bytes, gpu.total_bytes);
    }
}

TEST(DeviceFacts, MeasuresRatesNoCardIsBelow) {
    const GpuList list = gpus_or_reason();
    if (list.gpus.empty()) GTEST_SKIP() << list.problem;
    const GpuRates rates = measure_gpu(0);
    ASSERT_EQ(rates.problem, "");
    EXPECT_GT(rates.memory_bytes_per_s, 50e9);           // below any GPU of the last decade
    EXPECT_GT(rates.host_to_device_bytes_per_s, 0.5e9);  // PCIe 3.0 with a single lane
    EXPECT_GT(rates.device_to_host_bytes_per_s, 0.5e9);
    // Memory on the card is why it is there; a figure below the link's is a fault of measuring.
    EXPECT_GT(rates.memory_bytes_per_s, rates.host_to_device_bytes_per_s);
}

TEST(DeviceFacts, GivesBackWhatMeasuringTook) {
    const GpuList before = gpus_or_reason();
    if (before.gpus.empty()) GTEST_SKIP() << before.problem;
    ASSERT_EQ(measure_gpu(0).problem, "");
    ASSERT_EQ(measure_gpu(0).problem, "");
    const GpuList after = list_gpus();
    ASSERT_EQ(after.gpus.size(), before.gpus.size());
    // The driver keeps a little for itself at a first copy, never the buffers.
    constexpr std::uint64_t kKeptBytesMax = std::uint64_t{64} << 20;
    EXPECT_GE(after.gpus[0].free_bytes + kKeptBytesMax, before.gpus[0].free_bytes);
}

TEST(DeviceFacts, NamesAGpuThatIsNotThere) {
    const GpuList list = gpus_or_reason();
    if (list.gpus.empty()) GTEST_SKIP() << list.problem;
    const GpuRates rates = measure_gpu(static_cast<std::uint32_t>(list.gpus.size()));
    EXPECT_NE(rates.problem, "");
    EXPECT_EQ(rates.memory_bytes_per_s, 0);
    EXPECT_EQ(measure_gpu(0).problem, "") << "the refusal must not stick";
}

}  // namespace
}  // namespace plimsoll::kernels
