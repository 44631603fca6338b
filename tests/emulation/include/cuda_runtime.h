#pragma once

// The part of CUDA that kernels/cuda and tests/device use, for a CPU. Device memory is host memory,
// streams run at once, threads are the fibers of tests/emulation/scheduler.hpp.

#include <math.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "tests/emulation/scheduler.hpp"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// So that the program's TLS segment holds all of it, and can be swapped with the block.
#define __shared__ static thread_local

inline constexpr int warpSize = 32;

// Barriers and votes.

inline void __syncthreads() { plimsoll::emulation::meet_block(); }
inline int __syncthreads_or(int predicate) {
    return plimsoll::emulation::meet_block(predicate).any;
}
inline int __syncthreads_and(int predicate) {
    return plimsoll::emulation::meet_block(predicate).all;
}
inline int __syncthreads_count(int predicate) {
    return plimsoll::emulation::meet_block(predicate).count;
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
    plimsoll::emulation::meet_warp(
        mask, [](void* const(&)[32]) {}, nullptr);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { plimsoll::emulation::yield_thread(); }
[[noreturn]] inline void __trap() { __builtin_trap(); }

namespace plimsoll::emulation {

template <class T>
struct Shuffle {
    T value;
    T result;
    int from;  // lane, or less than 0: its own
};
/// Every lane gets the value of the lane it names; that of one which takes no part is noise.
template <class T>
T shuffle(unsigned mask, T value, int from) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    Shuffle<T> lane{value, value, from};
    meet_warp(
        mask,
        [](void* const(&lanes)[32]) {
            for (void* data : lanes) {
                if (data == nullptr) continue;
                auto& to = *static_cast<Shuffle<T>*>(data);
                const void* source = lanes[to.from];
                if (source == nullptr)
                    std::memset(static_cast<void*>(&to.result), 0xFF, sizeof(T));
                else
                    to.result = static_cast<const Shuffle<T>*>(source)->value;
            }
        },
        &lane);
    return lane.result;
}

/// One result for all lanes, made of their values by `combine`.
template <class T, class Combine>
T reduce_warp(unsigned mask, T value, Combine) {
    struct Lane {
        T value;
        T result;
    } lane{value, value};
    meet_warp(
        mask,
        [](void* const(&lanes)[32]) {
            bool any = false;
            T result{};
            for (std::uint32_t i = 0; i < 32; ++i) {
                if (lanes[i] == nullptr) continue;
                const T& own = static_cast<const Lane*>(lanes[i])->value;
                result = any ? Combine{}(result, own) : own;
                any = true;
            }
            for (void* data : lanes)
                if (data != nullptr) static_cast<Lane*>(data)->result = result;
        },
        &lane);
    return lane.result;
}

}  // namespace plimsoll::emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    const int lane = static_cast<int>(plimsoll::emulation::lane_index());
    return plimsoll::emulation::shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    const int lane = static_cast<int>(plimsoll::emulation::lane_index());
    const int from = lane ^ bits;
    return plimsoll::emulation::shuffle(mask, value, from / width > lane / width ? lane : from);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const int lane = static_cast<int>(plimsoll::emulation::lane_index());
    const int from = lane - static_cast<int>(by);
    return plimsoll::emulation::shuffle(mask, value, from < (lane & ~(width - 1)) ? lane : from);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    const int lane = static_cast<int>(plimsoll::emulation::lane_index());
    const int from = lane + static_cast<int>(by);
    return plimsoll::emulation::shuffle(mask, value, from > (lane | (width - 1)) ? lane : from);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const unsigned own = predicate != 0 ? 1u << plimsoll::emulation::lane_index() : 0u;
    return plimsoll::emulation::reduce_warp(mask, own,
                                            [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
    return plimsoll::emulation::reduce_warp(mask, value, [](T a, T b) { return T(a + b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
    return plimsoll::emulation::reduce_warp(mask, value, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
    return plimsoll::emulation::reduce_warp(mask, value, [](T a, T b) { return a < b ? b : a; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
    return plimsoll::emulation::reduce_warp(mask, value,
                                            [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
    return plimsoll::emulation::reduce_warp(mask, value,
                                            [](unsigned a, unsigned b) { return a & b; });
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
    struct Lane {
        T value;
        unsigned result;
    } lane{value, 0};
    plimsoll::emulation::meet_warp(
        mask,
        [](void* const(&lanes)[32]) {
            for (void* data : lanes) {
                if (data == nullptr) continue;
                auto& to = *static_cast<Lane*>(data);
                for (unsigned i = 0; i < 32; ++i)
                    if (lanes[i] != nullptr &&
                        static_cast<const Lane*>(lanes[i])->value == to.value)
                        to.result |= 1u << i;
            }
        },
        &lane);
    return lane.result;
}
inline unsigned __activemask() { return 0xFFFFFFFFu; }

// Integers and bits.

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        // Of a selector's four bits prmt reads the highest too, and this function does not.
        const unsigned choice = selector >> (4 * i) & 7u;
        result |= static_cast<unsigned>(bytes >> (8 * choice) & 255u) << (8 * i);
    }
    return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (by & 31u));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (by & 31u) >> 32);
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; ++i)
        sum += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
    return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 4; ++i) sum += (a >> (8 * i) & 255u) * (b >> (8 * i) & 255u);
    return sum;
}
inline int __dp2a_lo(int a, int b, int sum) {
    return sum + static_cast<std::int16_t>(a) * static_cast<std::int8_t>(b) +
           static_cast<std::int16_t>(a >> 16) * static_cast<std::int8_t>(b >> 8);
}
inline int __dp2a_hi(int a, int b, int sum) { return __dp2a_lo(a, b >> 16, sum); }
/// Bytes of a and b, subtracted and compared each for itself.
inline unsigned __vsub4(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (((a >> (8 * i)) - (b >> (8 * i))) & 255u) << (8 * i);
    return result;
}
inline unsigned __vadd4(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (((a >> (8 * i)) + (b >> (8 * i))) & 255u) << (8 * i);
    return result;
}
inline unsigned __vcmpne4(unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        if ((a >> (8 * i) & 255u) != (b >> (8 * i) & 255u)) result |= 255u << (8 * i);
    return result;
}
inline unsigned __vcmpeq4(unsigned a, unsigned b) { return ~__vcmpne4(a, b); }

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

template <class A, class B>
constexpr auto min(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(b) < static_cast<Common>(a) ? static_cast<Common>(b)
                                                           : static_cast<Common>(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
    using Common = std::common_type_t<A, B>;
    return static_cast<Common>(a) < static_cast<Common>(b) ? static_cast<Common>(b)
                                                           : static_cast<Common>(a);
}

// Floating point. Fast approximations are the exact functions here.

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
// The library's own headers declare __expf, __logf and their kin with C linkage and say no more.
inline float plimsoll_sinf(float x) { return sinf(x); }
inline float plimsoll_cosf(float x) { return cosf(x); }
inline float plimsoll_expf(float x) { return expf(x); }
inline float plimsoll_logf(float x) { return logf(x); }
inline float plimsoll_log2f(float x) { return log2f(x); }
inline float plimsoll_exp10f(float x) { return exp10f(x); }
inline float plimsoll_powf(float x, float y) { return powf(x, y); }
inline void plimsoll_sincosf(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }
#define __sinf plimsoll_sinf
#define __cosf plimsoll_cosf
#define __expf plimsoll_expf
#define __logf plimsoll_logf
#define __log2f plimsoll_log2f
#define __exp10f plimsoll_exp10f
#define __powf plimsoll_powf
#define __sincosf plimsoll_sincosf
inline void plimsoll_sincospif(float x, float* sine, float* cosine) {
    const double angle = static_cast<double>(x) * 3.14159265358979323846;
    *sine = static_cast<float>(sin(angle));
    *cosine = static_cast<float>(cos(angle));
}
// Newer libraries have a function of this name.
#define sincospif plimsoll_sincospif
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(nearbyintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Memory.

template <class T>
T __ldg(const T* from) {
    return *from;
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
T __ldca(const T* from) {
    return *from;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
T __ldcv(const T* from) {
    return *from;
}
template <class T>
void __stcg(T* to, T value) {
    *to = value;
}
template <class T>
void __stcs(T* to, T value) {
    *to = value;
}
template <class T>
void __stwt(T* to, T value) {
    *to = value;
}

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = static_cast<T>(before + value);
    return before;
}
template <class T>
T atomicSub(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = static_cast<T>(before - value);
    return before;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    if (before < value) *at = value;
    return before;
}
template <class T>
T atomicMin(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    if (value < before) *at = value;
    return before;
}
template <class T>
T atomicOr(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = before | value;
    return before;
}
template <class T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = before & value;
    return before;
}
template <class T>
T atomicXor(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = before ^ value;
    return before;
}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
    const T before = *at;
    *at = value;
    return before;
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    const T before = *at;
    if (before == expected) *at = value;
    return before;
}
inline unsigned atomicInc(unsigned* at, unsigned last) {
    const unsigned before = *at;
    *at = before >= last ? 0 : before + 1;
    return before;
}

// The runtime.

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorDevicesUnavailable = 46,
    cudaErrorECCUncorrectable = 214,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorAssert = 710,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum {
    cudaEventDisableTiming = 2,
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaHostAllocDefault = 0
};
struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem;
    std::size_t sharedMemPerBlockOptin;
    int multiProcessorCount;
    int major;
    int minor;
};

/// 0xFF in every byte at first.
cudaError_t cudaMalloc(void** to, std::size_t n_bytes);
cudaError_t cudaHostAlloc(void** to, std::size_t n_bytes, unsigned flags);
cudaError_t cudaFree(void* from);
cudaError_t cudaFreeHost(void* from);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
template <class T>
cudaError_t cudaMalloc(T** to, std::size_t n_bytes) {
    return cudaMalloc(reinterpret_cast<void**>(to), n_bytes);
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n_bytes, cudaMemcpyKind) {
    if (n_bytes != 0) std::memmove(to, from, n_bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, std::size_t n_bytes) {
    if (n_bytes != 0) std::memset(to, value, n_bytes);
    return cudaSuccess;
}

namespace plimsoll::emulation {
/// What is put on a stream: done at once, or recorded while a graph is captured.
void enqueue(std::function<void()> work);
}  // namespace plimsoll::emulation

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n_bytes,
                                   cudaMemcpyKind kind, cudaStream_t = nullptr) {
    plimsoll::emulation::enqueue([=] { cudaMemcpy(to, from, n_bytes, kind); });
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, std::size_t n_bytes,
                                   cudaStream_t = nullptr) {
    plimsoll::emulation::enqueue([=] { cudaMemset(to, value, n_bytes); });
    return cudaSuccess;
}

// Graphs: lists of what was put on a stream. There is one stream.

struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;
using cudaGraphNode_t = CUgraphNode_st*;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* n_nodes);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made);
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
    return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = nullptr;
    return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    return cudaEventCreate(event);
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
    *milliseconds = 0;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t status) {
    return status == cudaSuccess ? "no error" : "an error of the emulated device";
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = *total_bytes = std::size_t{1} << 32;
    return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n_blocks, Kernel, int n_threads,
                                                          std::size_t shared_bytes) {
    const std::size_t by_threads =
        plimsoll::emulation::kThreadsResidentMax / static_cast<std::size_t>(n_threads);
    const std::size_t by_shared = plimsoll::emulation::kSharedBytesMax / (shared_bytes + 1024);
    *n_blocks = static_cast<int>(by_threads < by_shared ? by_threads : by_shared);
    return cudaSuccess;
}
