#pragma once

// The twin of kernels/cuda/intrinsics.cuh: the same names with the same meaning, on a CPU.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <source_location>
#include <tuple>
#include <utility>

#include "kernels/check.hpp"
#include "kernels/cuda/launch.hpp"
#include "tests/emulation/scheduler.hpp"
#include "tests/emulation/tensor_core.hpp"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFu;

inline unsigned char* dynamic_shared() { return emulation::dynamic_shared(); }

// A launch starts when the one before has ended.
inline void wait_for_previous_kernel() {}
inline void allow_next_kernel() {}

inline uint4 load_once(const void* from) { return *static_cast<const uint4*>(from); }
inline void prefetch_l2(const void*) {}
inline void copy_async16(void* to_shared, const void* from, bool valid = true) {
    emulation::copy_async(to_shared, from, 16, valid);
}
template <int kBytes>
inline void copy_async(void* to_shared, const void* from, bool valid = true) {
    static_assert(kBytes == 4 || kBytes == 8);
    emulation::copy_async(to_shared, from, kBytes, valid);
}
inline void commit_copies() { emulation::commit_copies(); }
template <int kPending>
inline void wait_for_copies() {
    emulation::wait_for_copies(kPending);
}

inline void keep_order() {}

inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    emulation::mma_f16(d, a, b);
}
inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    emulation::mma_tf32(d, a, b);
}
inline void load_matrix(std::uint32_t (&r)[4], const void* row_shared) {
    emulation::load_matrix(r, row_shared);
}
inline void load_matrix_transposed(std::uint32_t (&r)[4], const void* row_shared) {
    emulation::load_matrix_transposed(r, row_shared);
}

inline std::int32_t dot4(std::uint32_t a, std::uint32_t b, std::int32_t acc) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), acc);
}
inline std::int32_t dot4_signed_unsigned(std::uint32_t a, std::uint32_t b, std::int32_t acc) {
    for (int i = 0; i < 4; ++i)
        acc += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::uint8_t>(b >> (8 * i));
    return acc;
}

inline std::uint32_t permute_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
    const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t choice = selector >> (4 * i) & 15u;
        auto byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7u)) & 255u);
        if ((choice & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;  // its sign, repeated
        result |= byte << (8 * i);
    }
    return result;
}

/// In the order of the device's, with the same bits, but as one meeting of the warp.
inline float warp_sum(float x) { return emulation::warp_sum(x); }
inline float warp_max(float x) {
    return emulation::reduce_warp(kAllLanes, x, [](float a, float b) { return fmaxf(a, b); });
}

inline std::uint32_t load_acquire(const std::uint32_t* counter) {
    emulation::yield_thread();  // who asks may be waiting for another to write it
    return *counter;
}
inline std::uint32_t add_release(std::uint32_t* counter, std::uint32_t value) {
    return atomicAdd(counter, value);
}
inline void wait_a_little() { emulation::yield_thread(); }

inline std::uint32_t before_meeting(const std::uint32_t* counter) { return *counter; }
inline void meet_blocks(std::uint32_t* counter, std::uint32_t n_blocks, bool leads,
                        std::uint32_t before) {
    __syncthreads();
    if (threadIdx.x == 0) {
        constexpr std::uint32_t kTopBit = 0x80000000u;
        add_release(counter, leads ? kTopBit - (n_blocks - 1) : 1u);
        while (((load_acquire(counter) ^ before) & kTopBit) == 0) wait_a_little();
    }
    __syncthreads();
}
inline void meet_all_blocks(std::uint32_t* counter) {
    meet_blocks(counter, gridDim.x * gridDim.y * gridDim.z,
                (blockIdx.x | blockIdx.y | blockIdx.z) == 0, before_meeting(counter));
}

inline std::uint32_t shared_bytes_max() {
    return static_cast<std::uint32_t>(emulation::kSharedBytesMax);
}

struct Shape {
    dim3 grid;
    dim3 block;
    std::uint32_t shared_bytes = 0;  // dynamic
    bool all_blocks_resident = false;
    std::source_location launcher = std::source_location::current();  // for messages
};

template <class... Params, class... Args>
void launch_kernel(void (*kernel)(Params...), const Shape& shape, const Launch&, Args&&... args) {
    if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
    struct Call {
        void (*kernel)(Params...);
        std::tuple<Params...> params;
    };
    const Call call{kernel, {static_cast<Params>(std::forward<Args>(args))...}};
    emulation::enqueue([shape, call] {
        emulation::run_grid(
            {shape.grid, shape.block, shape.shared_bytes, shape.all_blocks_resident,
             shape.launcher},
            [](const void* data) {
                const auto& made = *static_cast<const Call*>(data);
                std::apply(made.kernel, made.params);
            },
            &call);
    });
}

}  // namespace plimsoll::kernels::cuda
