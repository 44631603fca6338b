#pragma once

// What device code needs beyond C++ and the CUDA headers: PTX by name, warp sums, and the launch.
// Kernels use these and no PTX of their own; tests/emulation has a twin of this file with which the
// same sources run on a CPU.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/check.hpp"
#include "kernels/cuda/context.cuh"
#include "kernels/cuda/launch.hpp"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFu;

/// The launch's dynamic shared memory, aligned to 128 bytes.
__device__ __forceinline__ unsigned char* dynamic_shared() {
    extern __shared__ __align__(128) unsigned char plimsoll_dynamic_shared[];
    return plimsoll_dynamic_shared;
}

// Programmatic dependent launch (sm_90 and later; nothing on earlier chips).

/// Waits until the launch before has finished and its writes are visible. Before this call a kernel
/// may touch only memory that no launch writes: weights.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the launch behind start; it still waits for this one's end where it says so.
__device__ __forceinline__ void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Memory.

/// 16 bytes read once: not kept in L1.
__device__ __forceinline__ uint4 load_once(const void* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
/// Asks for the line at `from` in L2.
__device__ __forceinline__ void prefetch_l2(const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}
/// 16 bytes from global to shared memory, both aligned to 16, asynchronously. Where not `valid`:
/// zeros, and `from` is not read.
__device__ __forceinline__ void copy_async16(void* to_shared, const void* from, bool valid = true) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
/// The same for 4 or 8 bytes (through L1).
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to_shared, const void* from, bool valid = true) {
    static_assert(kBytes == 4 || kBytes == 8);
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(to_shared));
    const int bytes = valid ? kBytes : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(bytes));
}
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until at most kPending of this thread's groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
/// Accesses before this call stay before those behind it, as the compiler sees them: for a thread
/// that reads from shared memory and then has a copy write to the same place.
__device__ __forceinline__ void keep_order() { asm volatile("" ::: "memory"); }

// Tensor cores. Fragments as PTX lays them out for m16n8k16: with g = lane / 4 and c = lane % 4,
//   a[0] row g,   k 2c..2c+1;   a[1] row g+8, same k;   a[2] row g, k 2c+8..2c+9;   a[3] row g+8
//   b[0] column g, k 2c..2c+1;  b[1] column g, k 2c+8..2c+9
//   d[0..1] row g, columns 2c..2c+1;  d[2..3] row g+8

/// d += a . b, float16 with float32 sums; each register holds two halves, the lower k in the low
/// bits.
__device__ __forceinline__ void mma_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d += a . b for m16n8k8: operands are float32 of which 19 bits count (sign, exponent, 10 of the
/// mantissa), sums float32.
///   a[0] row g, k c;   a[1] row g+8, k c;   a[2] row g, k c+4;   a[3] row g+8, k c+4
///   b[0] column g, k c;   b[1] column g, k c+4;   d as above
__device__ __forceinline__ void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// Four 8x8 tiles of halves from shared memory: lane l gives the address of row l % 8 of tile l /
/// 8, and gets in r[i] the two halves at row lane / 4, columns 2 * (lane % 4) of tile i.
__device__ __forceinline__ void load_matrix(std::uint32_t (&r)[4], const void* row_shared) {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row_shared));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
/// The same, each tile transposed.
__device__ __forceinline__ void load_matrix_transposed(std::uint32_t (&r)[4],
                                                       const void* row_shared) {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row_shared));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// Integers.

/// acc + the sum of four products of signed bytes.
__device__ __forceinline__ std::int32_t dot4(std::uint32_t a, std::uint32_t b, std::int32_t acc) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), acc);
}
/// The same, a signed and b unsigned bytes.
__device__ __forceinline__ std::int32_t dot4_signed_unsigned(std::uint32_t a, std::uint32_t b,
                                                             std::int32_t acc) {
    std::int32_t d;
    asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(acc));
    return d;
}

/// Four of the eight bytes of (low, high), the one named by each of the selector's four lower
/// nibbles. __byte_perm masks nibbles to 3 bits first; here they must be below 8.
__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high,
                                                       std::uint32_t selector) {
    std::uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(selector));
    return d;
}

// Warps.

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(kAllLanes, x, offset);
    return x;
}
__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, offset));
    return x;
}

// Blocks that must meet.

/// A counter's value with the writes that its writers made before visible to this thread.
__device__ __forceinline__ std::uint32_t load_acquire(const std::uint32_t* counter) {
    std::uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}
/// Adds `value` to a counter behind this thread's earlier writes; returns what it was.
__device__ __forceinline__ std::uint32_t add_release(std::uint32_t* counter, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(value)
                 : "memory");
    return before;
}
/// A pause in a loop that waits for another block.
__device__ __forceinline__ void wait_a_little() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
}

/// What meet_blocks needs to know of its counter: read by each block behind the wait for the launch
/// before, any time before it comes to the meeting.
__device__ __forceinline__ std::uint32_t before_meeting(const std::uint32_t* counter) {
    return __ldcg(counter);
}
/// Waits for `n_blocks` blocks of the launch, of which one leads (threads of a block together): the
/// launch must be `all_blocks_resident`. A meeting adds 2^31 to the counter in all: the leader what
/// the others' ones leave, so the top bit turns when the last has come, the rest is zero again, and
/// launches of other grids may meet on the same counter.
__device__ __forceinline__ void meet_blocks(std::uint32_t* counter, std::uint32_t n_blocks,
                                            bool leads, std::uint32_t before) {
    __syncthreads();
    if (threadIdx.x == 0) {
        constexpr std::uint32_t kTopBit = 0x80000000u;
        const std::uint32_t own = leads ? kTopBit - (n_blocks - 1) : 1u;
        // No answer is waited for: the trip to L2 and back is that of the first question.
        asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(own)
                     : "memory");
        while (((load_acquire(counter) ^ before) & kTopBit) == 0) wait_a_little();
    }
    __syncthreads();
}
/// The same for all blocks of the launch.
__device__ __forceinline__ void meet_all_blocks(std::uint32_t* counter) {
    meet_blocks(counter, gridDim.x * gridDim.y * gridDim.z,
                (blockIdx.x | blockIdx.y | blockIdx.z) == 0, before_meeting(counter));
}

/// Shared memory that a block may ask for on the current device.
inline std::uint32_t shared_bytes_max() {
    int device = 0, bytes = 0;
    cudaError_t asked = cudaGetDevice(&device);
    if (asked == cudaSuccess)
        asked = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    PLIMSOLL_KERNEL_CHECK(asked == cudaSuccess, cudaGetErrorString(asked));
    return static_cast<std::uint32_t>(bytes);
}

/// Grid and block of a launch.
struct Shape {
    dim3 grid;
    dim3 block;
    std::uint32_t shared_bytes = 0;  // dynamic
    /// Blocks wait for one another: the grid must fit on the device at once.
    bool all_blocks_resident = false;
};

/// Launches a kernel; nothing where the grid is empty. Stops the program where CUDA refuses, but
/// for what an earlier kernel has done to the context: whoever waits next is told of that.
template <class... Params, class... Args>
void launch_kernel(void (*kernel)(Params...), const Shape& shape, const Launch& where,
                   Args&&... args) {
    if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
    if (shape.shared_bytes > 48 * 1024) {
        const cudaError_t raised = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        static_cast<int>(shape.shared_bytes));
        PLIMSOLL_KERNEL_CHECK(raised == cudaSuccess || is_context_lost(raised),
                              cudaGetErrorString(raised));
    }
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = shape.grid;
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = where.stream;
    config.attrs = &attribute;
    config.numAttrs = where.overlaps_previous ? 1 : 0;
    const cudaError_t launched =
        cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...);
    PLIMSOLL_KERNEL_CHECK(launched == cudaSuccess || is_context_lost(launched),
                          cudaGetErrorString(launched));
}

}  // namespace plimsoll::kernels::cuda
