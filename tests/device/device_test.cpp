#include "kernels/cuda/device.hpp"

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels::cuda {
namespace {

using namespace test;

class OpenDevice : public testing::Test {
protected:
    void SetUp() override {
        PLIMSOLL_NEEDS_GPU();
        const DeviceProblem opened = Device::open(0, device_);
        ASSERT_TRUE(opened.is_none()) << opened.message;
    }
    [[nodiscard]] DeviceMemory allocate(std::uint64_t size_bytes) {
        DeviceMemory memory;
        const DeviceProblem problem = device_.allocate(size_bytes, memory);
        EXPECT_TRUE(problem.is_none()) << problem.message;
        return memory;
    }
    [[nodiscard]] DeviceMemory allocate_pinned(std::uint64_t size_bytes) {
        DeviceMemory memory;
        const DeviceProblem problem = device_.allocate_pinned(size_bytes, memory);
        EXPECT_TRUE(problem.is_none()) << problem.message;
        return memory;
    }
    Device device_;
};

TEST_F(OpenDevice, CountsAllocationsAndMakesNoneOfNoBytes) {
    const DeviceMemory none = allocate(0);
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(device_.n_allocations(), 0u);
    const DeviceMemory some = allocate(1000), pinned = allocate_pinned(100);
    EXPECT_NE(some.data(), nullptr);
    EXPECT_EQ(some.size_bytes(), 1000u);
    EXPECT_EQ(device_.n_allocations(), 2u);
    EXPECT_LE(device_.free_bytes(), device_.total_bytes());
}

TEST_F(OpenDevice, TellsWhatTheDriverRefusesAndGoesOn) {
    DeviceMemory memory;
    const DeviceProblem problem = device_.allocate(std::uint64_t{1} << 50, memory);
    ASSERT_FALSE(problem.is_none());
    EXPECT_FALSE(problem.is_lost);
    EXPECT_EQ(memory.data(), nullptr);
    EXPECT_EQ(device_.n_allocations(), 0u);
    EXPECT_TRUE(device_.wait().is_none()) << "the refusal must not stick";
}

TEST_F(OpenDevice, CarriesBytesThroughSlotsThatAreFilledAgain) {
    constexpr std::uint64_t kBytes = 1 << 16;
    constexpr std::uint32_t kRounds = 5;
    const DeviceMemory ring = allocate_pinned(Device::kLoadSlots * kBytes);
    const DeviceMemory scratch = allocate(Device::kLoadSlots * kBytes);
    const DeviceMemory place = allocate(kRounds * Device::kLoadSlots * kBytes);
    for (std::uint32_t at = 0; at < kRounds * Device::kLoadSlots; ++at) {
        const std::uint32_t slot = at % Device::kLoadSlots;
        const DeviceProblem problem = device_.wait_for_slot_copy(slot);
        ASSERT_TRUE(problem.is_none()) << problem.message;
        std::memset(ring.data() + slot * kBytes, static_cast<int>(at), kBytes);
        device_.copy_slot_to_device(slot, scratch.data() + slot * kBytes,
                                    ring.data() + slot * kBytes, kBytes);
        device_.compute_behind_slot(slot);
        device_.copy_within_device(place.data() + at * kBytes, scratch.data() + slot * kBytes,
                                   kBytes);
        device_.mark_slot_used(slot);
    }
    ASSERT_TRUE(device_.wait().is_none());
    const DeviceMemory back = allocate_pinned(place.size_bytes());
    device_.copy_to_host(back.data(), place.data(), place.size_bytes());
    ASSERT_TRUE(device_.wait().is_none());
    for (std::uint64_t at = 0; at < back.size_bytes(); ++at)
        ASSERT_EQ(back.data()[at], static_cast<std::byte>(at / kBytes)) << "byte " << at;
}

TEST_F(OpenDevice, ReplaysWhatItRecordedAndAllocatesNothingForIt) {
    const DeviceMemory memory = allocate(sizeof(StepState) + sizeof(std::int32_t));
    auto* state = reinterpret_cast<StepState*>(memory.data());
    const auto* next = reinterpret_cast<const std::int32_t*>(memory.data() + sizeof(StepState));
    device_.fill_zero(memory.data(), memory.size_bytes());
    set_step(7, 3, device_.launch(state));
    device_.begin_capture();
    for (int launch = 0; launch < 3; ++launch) advance_step(next, device_.launch(state));
    Graph graph;
    EXPECT_TRUE(graph.is_empty());
    const DeviceProblem recorded = device_.end_capture(graph);
    ASSERT_TRUE(recorded.is_none()) << recorded.message;
    EXPECT_EQ(graph.n_nodes(), 3u);
    const DeviceMemory back = allocate_pinned(sizeof(StepState));
    const std::uint64_t free_bytes = device_.free_bytes();
    for (int replay = 0; replay < 10; ++replay) device_.launch(graph);
    device_.copy_to_host(back.data(), state, sizeof(StepState));
    ASSERT_TRUE(device_.wait().is_none());
    EXPECT_EQ(device_.free_bytes(), free_bytes);
    StepState read{};
    std::memcpy(&read, back.data(), sizeof(read));
    EXPECT_EQ(read.position, 7u + 30u);
    EXPECT_EQ(read.token, 0);
}

}  // namespace
}  // namespace plimsoll::kernels::cuda
