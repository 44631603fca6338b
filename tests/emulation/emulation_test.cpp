#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/intrinsics.cuh"

/// That the emulation finds what it is for. What a GPU can do as well is in
/// tests/device/intrinsics_test.cpp.
namespace plimsoll::kernels::cuda {
namespace {

/// Reads before (`early`) and after it waits for what it copies.
__global__ void read_copied(const float* values, float* early, float* late) {
    __shared__ __align__(16) float staged[2][4];
    copy_async16(staged[0], values);
    commit_copies();
    copy_async16(staged[1], values + 4);
    commit_copies();
    wait_for_copies<1>();
    for (int i = 0; i < 4; ++i) early[i] = staged[0][i], early[4 + i] = staged[1][i];
    wait_for_copies<0>();
    for (int i = 0; i < 4; ++i) late[i] = staged[0][i], late[4 + i] = staged[1][i];
}

TEST(Emulation, CopiesArriveOnlyWhenWaitedFor) {
    alignas(16) const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float early[8] = {}, late[8] = {};
    launch_kernel(read_copied, {1, 1}, {}, values, early, late);
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(late[i], values[i]);
        if (i < 4) {
            EXPECT_EQ(early[i], values[i]);
        } else {
            EXPECT_TRUE(std::isnan(early[i])) << i;
        }
    }
}

__global__ void leave_in_shared(float* found) {
    __shared__ float value;
    auto* dynamic = reinterpret_cast<float*>(dynamic_shared());
    found[2 * blockIdx.x] = value;
    found[2 * blockIdx.x + 1] = dynamic[0];
    value = dynamic[0] = 1;
}

TEST(Emulation, ABlockFindsNothingInSharedMemory) {
    float found[6] = {};
    for (const bool resident : {false, true}) {
        launch_kernel(leave_in_shared, {3, 1, 4, resident}, {}, found);
        for (const float value : found) EXPECT_TRUE(std::isnan(value));
    }
}

/// A neighbour's value without a barrier between, in either direction.
__global__ void read_neighbour(float* sums) {
    __shared__ float values[64];
    values[threadIdx.x] = 1;
    sums[64 * blockIdx.x + threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

TEST(Emulation, AMissingBarrierIsNoticed) {
    std::vector<float> sums(128);
    launch_kernel(read_neighbour, {2, 64}, {}, sums.data());
    for (int block = 0; block < 2; ++block)
        EXPECT_TRUE(std::any_of(sums.begin() + 64 * block, sums.begin() + 64 * (block + 1),
                                [](float value) { return std::isnan(value); }));
}

__global__ void part_at_barriers() {
    if (threadIdx.x == 3)
        __syncwarp();
    else
        __syncthreads();
}
__global__ void part_at_operations() {
    if (threadIdx.x == 3)
        __syncwarp();
    else
        __shfl_xor_sync(kAllLanes, 1, 1);
}
__global__ void speak_for_others() { __syncwarp(0xFFFFFFFEu); }
__global__ void write_behind() { dynamic_shared()[64] = 0; }
__global__ void copy_askew(const unsigned char* from) { copy_async16(dynamic_shared(), from + 4); }
__global__ void copy_to_global(unsigned char* to, const unsigned char* from) {
    copy_async16(to, from);
}
__global__ void meet_others(std::uint32_t* counter) { meet_all_blocks(counter); }

TEST(EmulationDeathTest, FaultsStopTheProgramAndSayWhere) {
    alignas(16) unsigned char bytes[64] = {};
    std::uint32_t counter = 0;
    EXPECT_DEATH(launch_kernel(part_at_barriers, {1, 64}, {}), "for each other for ever");
    EXPECT_DEATH(launch_kernel(part_at_operations, {1, 32}, {}), "different operations");
    EXPECT_DEATH(launch_kernel(speak_for_others, {1, 32}, {}), "without being in its mask");
    EXPECT_DEATH(launch_kernel(write_behind, {1, 1, 64}, {}), "behind dynamic shared memory");
    EXPECT_DEATH(launch_kernel(copy_askew, {1, 1, 64}, {}, bytes), "misaligned");
    EXPECT_DEATH(launch_kernel(copy_to_global, {1, 1}, {}, bytes, bytes + 16),
                 "outside of shared memory");
    EXPECT_DEATH(launch_kernel(meet_others, {2, 32}, {}, &counter), "all_blocks_resident");
    EXPECT_DEATH(launch_kernel(meet_others, {1000, 1024, 0, true}, {}, &counter), "more blocks");
    EXPECT_DEATH(launch_kernel(part_at_barriers, {1, 64}, {}), "emulation_test.cpp");
}

/// Threads that have ended are not waited for.
__global__ void end_early(int* counts) {
    if (threadIdx.x >= 40) return;
    const int all = __syncthreads_count(1);
    if (threadIdx.x >= 34) return;
    counts[threadIdx.x] = all + static_cast<int>(__popc(__ballot_sync(kAllLanes, 1)));
}

TEST(Emulation, ThreadsThatEndedAreNotWaitedFor) {
    int counts[34] = {};
    launch_kernel(end_early, {1, 64}, {}, counts);
    for (int thread = 0; thread < 34; ++thread) EXPECT_EQ(counts[thread], thread < 32 ? 72 : 42);
}

__global__ void double_it(int* value) { *value *= 2; }

TEST(Emulation, AGraphRunsWhenItIsLaunched) {
    int value = 3;
    const int start = 5;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    cudaMemcpyAsync(&value, &start, sizeof(value), cudaMemcpyHostToDevice);
    launch_kernel(double_it, {1, 1}, {}, &value);
    launch_kernel(double_it, {1, 1}, {}, &value);
    ASSERT_EQ(cudaStreamEndCapture(nullptr, &graph), cudaSuccess);
    EXPECT_EQ(value, 3);
    std::size_t n_nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &n_nodes);
    EXPECT_EQ(n_nodes, 3u);
    cudaGraphInstantiate(&made, graph);
    cudaGraphDestroy(graph);
    for (int times = 0; times < 2; ++times) {
        cudaGraphLaunch(made, nullptr);
        EXPECT_EQ(value, 20);
    }
    cudaGraphExecDestroy(made);
}

}  // namespace
}  // namespace plimsoll::kernels::cuda
