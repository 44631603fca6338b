#include "kernels/cuda/intrinsics.cuh"
#include "tests/device/intrinsics_kernels.hpp"

namespace plimsoll::kernels::test {
namespace {

using namespace cuda;

constexpr std::uint32_t kBlockThreads = 256;

__global__ void __launch_bounds__(32)
    multiply_tile_kernel(const std::uint16_t* a, const std::uint16_t* b, float* product) {
    // Rows of 48 bytes for b: 16-byte aligned and without bank conflicts.
    __shared__ __align__(16) std::uint16_t a_tile[16][24];
    __shared__ __align__(16) std::uint16_t b_tile[16][24];
    const std::uint32_t lane = threadIdx.x;
    for (std::uint32_t i = lane; i < 256; i += kWarp) a_tile[i / 16][i % 16] = a[i];
    for (std::uint32_t i = lane; i < 128; i += kWarp) b_tile[i / 8][i % 8] = b[i];
    __syncwarp();
    const std::uint32_t tile = lane / 8, row = lane % 8;
    std::uint32_t a_regs[4], b_regs[4];
    load_matrix(a_regs, &a_tile[row + 8 * (tile % 2)][8 * (tile / 2)]);
    // Tiles 2 and 3 are not used.
    load_matrix_transposed(b_regs, &b_tile[row + 8 * (tile % 2)][0]);
    const std::uint32_t g = lane / 4, c = lane % 4;
    float d[4];
    for (std::uint32_t i = 0; i < 4; ++i) d[i] = product[(g + 8 * (i / 2)) * 8 + 2 * c + i % 2];
    const std::uint32_t b_pair[2] = {b_regs[0], b_regs[1]};
    mma_f16(d, a_regs, b_pair);
    for (std::uint32_t i = 0; i < 4; ++i) product[(g + 8 * (i / 2)) * 8 + 2 * c + i % 2] = d[i];
}

__global__ void __launch_bounds__(kBlockThreads)
    sum_blocks_kernel(const float* values, float* sums) {
    __shared__ float partial[kBlockThreads / kWarp];
    auto* staged = reinterpret_cast<float*>(dynamic_shared());
    const std::uint32_t thread = threadIdx.x;
    const float* own = values + std::uint64_t{blockIdx.x} * kBlockThreads;
    // The first group by 16 bytes, the second by 4, one thread's copies read by another.
    if (thread < kBlockThreads / 8) copy_async16(staged + 4 * thread, own + 4 * thread);
    commit_copies();
    if (thread >= kBlockThreads / 2) copy_async<4>(staged + thread, own + thread);
    commit_copies();
    wait_for_copies<1>();
    wait_for_copies<0>();
    __syncthreads();
    const float sum = warp_sum(staged[kBlockThreads - 1 - thread]);
    if (thread % kWarp == 0) partial[thread / kWarp] = sum;
    __syncthreads();
    if (thread == 0) {
        float total = 0;
        for (const float part : partial) total += part;
        sums[blockIdx.x] = total;
    }
}

__global__ void __launch_bounds__(kBlockThreads)
    meet_twice_kernel(std::uint32_t* numbers, std::uint32_t* totals, std::uint32_t* counter) {
    __shared__ std::uint32_t own_total;
    const std::uint32_t block = blockIdx.x, n_blocks = gridDim.x;
    for (std::uint32_t round = 0; round < 2; ++round) {
        if (threadIdx.x == 0) {
            own_total = 0;
            numbers[block] = block + 1 + 100 * round;
        }
        meet_all_blocks(counter);
        // Static shared memory is each block's own, also where blocks take turns.
        for (std::uint32_t i = threadIdx.x; i < n_blocks; i += blockDim.x)
            atomicAdd(&own_total, __ldcg(&numbers[i]));
        meet_all_blocks(counter);
        if (threadIdx.x == 0) totals[round * n_blocks + block] = own_total;
        __syncthreads();
    }
}

__global__ void __launch_bounds__(kWarpThreads) warp_operations_kernel(std::uint32_t* results) {
    const std::uint32_t thread = threadIdx.x, lane = thread % kWarp;
    // The second warp is half a warp.
    const std::uint32_t mask = thread < kWarp ? kAllLanes : 0xFFFFu;
    std::uint32_t n = 0;
    const auto put = [&](std::uint32_t value) { results[n++ * kWarpThreads + thread] = value; };
    put(__shfl_xor_sync(mask, thread, 5));
    put(__shfl_up_sync(mask, thread, 3));
    put(__shfl_down_sync(mask, thread, 3, 8));
    put(__shfl_sync(mask, thread, static_cast<int>(lane + 1), 4));
    put(__ballot_sync(mask, lane % 3 == 0));
    put(static_cast<std::uint32_t>(__any_sync(mask, lane == 7)));
    put(static_cast<std::uint32_t>(__all_sync(mask, lane < 16)));
    put(static_cast<std::uint32_t>(__syncthreads_count(lane % 2 == 0)));
    put(__byte_perm(0xB3221100u, 0x776655F4u, 0x7B40u));
    put(static_cast<std::uint32_t>(dot4(0x80FF7F01u, 0x02030405u, 7)));
    put(static_cast<std::uint32_t>(dot4_signed_unsigned(0x80FF7F01u, 0xFF0304F5u, 7)));
    // Lanes that part ways meet their own half only.
    const std::uint32_t half_mask = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    std::uint32_t sum = lane;
    if (lane < 16) {
        for (int offset = 8; offset > 0; offset /= 2)
            sum += __shfl_xor_sync(half_mask, sum, offset);
    } else {
        sum = 1000 + __shfl_sync(half_mask, sum, 20);
    }
    put(sum);
}

}  // namespace

void multiply_tile(const std::uint16_t* a, const std::uint16_t* b, float* product,
                   const Launch& launch) {
    launch_kernel(multiply_tile_kernel, {1, kWarp}, launch, a, b, product);
}

void sum_blocks(const float* values, float* sums, std::uint32_t n_blocks, const Launch& launch) {
    launch_kernel(sum_blocks_kernel, {n_blocks, kBlockThreads, kBlockThreads * sizeof(float)},
                  launch, values, sums);
}

void meet_twice(std::uint32_t* numbers, std::uint32_t* totals, std::uint32_t n_blocks,
                const Launch& launch) {
    launch_kernel(meet_twice_kernel, {n_blocks, kBlockThreads, 0, true}, launch, numbers, totals,
                  &launch.state->counters[static_cast<std::uint32_t>(Counter::spare)][0]);
}

void warp_operations(std::uint32_t* results, const Launch& launch) {
    launch_kernel(warp_operations_kernel, {1, kWarpThreads}, launch, results);
}

}  // namespace plimsoll::kernels::test
