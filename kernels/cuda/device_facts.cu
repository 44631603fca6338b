#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/blas.hpp"
#include "kernels/cuda/device_facts.hpp"
#include "kernels/cuda/intrinsics.cuh"

namespace plimsoll::kernels {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Past any cache: 512 MiB to copy from and as many to copy to, where L2 is 126 MB on the largest
/// GPU.
constexpr std::uint64_t kCopyBytesMax = 512 * kMiB;
constexpr std::uint64_t kPinnedBytesMax = 256 * kMiB;
constexpr std::uint64_t kCopyBytesMin = kMiB;
/// The best of several, since what else runs there can only slow a copy down.
constexpr int kRepeats = 8;

/// What a failed call means, in CUDA's words. Clears it, so that the next call does not report it
/// again.
std::string problem_of(cudaError_t status, const char* what) {
    cudaGetLastError();
    return std::string(what) + ": " + cudaGetErrorString(status);
}

/// Memory and events of one measurement, given back however it ends.
class Buffers {
public:
    Buffers() = default;
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;
    ~Buffers() {
        cudaFree(device_);
        cudaFreeHost(host_);
        if (start_ != nullptr) cudaEventDestroy(start_);
        if (stop_ != nullptr) cudaEventDestroy(stop_);
    }

    /// Two halves of `copy_bytes` on the device and `pinned_bytes` on the host.
    cudaError_t make(std::uint64_t copy_bytes, std::uint64_t pinned_bytes) {
        cudaError_t status = cudaMalloc(&device_, 2 * copy_bytes);
        if (status == cudaSuccess) status = cudaMemset(device_, 1, 2 * copy_bytes);
        if (status == cudaSuccess) status = cudaMallocHost(&host_, pinned_bytes);
        if (status == cudaSuccess) status = cudaEventCreate(&start_);
        if (status == cudaSuccess) status = cudaEventCreate(&stop_);
        return status;
    }

    /// Seconds of the fastest of several copies of `size_bytes`, after one that warms up.
    cudaError_t time_copy(void* to, const void* from, std::uint64_t size_bytes, double& seconds) {
        float best_ms = std::numeric_limits<float>::max();
        cudaError_t status = cudaSuccess;
        for (int repeat = 0; repeat <= kRepeats && status == cudaSuccess; ++repeat) {
            float ms = 0;
            status = cudaEventRecord(start_);
            if (status == cudaSuccess)
                status = cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault);
            if (status == cudaSuccess) status = cudaEventRecord(stop_);
            if (status == cudaSuccess) status = cudaEventSynchronize(stop_);
            if (status == cudaSuccess) status = cudaEventElapsedTime(&ms, start_, stop_);
            if (repeat > 0) best_ms = std::min(best_ms, ms);
        }
        seconds = static_cast<double>(best_ms) * 1e-3;
        return status;
    }

    char* device() const { return static_cast<char*>(device_); }
    char* host() const { return static_cast<char*>(host_); }

private:
    void* device_ = nullptr;
    void* host_ = nullptr;
    cudaEvent_t start_ = nullptr;
    cudaEvent_t stop_ = nullptr;
};

/// Stands for decode's kernels, with parameters of their size.
struct TrialParams {
    std::uint64_t words[32];
};
__global__ void trial_kernel(const TrialParams params) {
    cuda::wait_for_previous_kernel();
    cuda::allow_next_kernel();
    if (params.words[0] != 0) __trap();
}
/// Launches of a decode step with the most layers, and some.
constexpr int kTrialNodes = 1024;

/// Of a product by cuBLAS, with which it takes what it takes of its own.
constexpr std::uint32_t kTrialWidth = 1024;
constexpr std::uint64_t kTrialMatrixBytes = std::uint64_t{kTrialWidth} * kTrialWidth * 2;

/// What an engine holds on the device beside its arena: two streams, a handle of cuBLAS that was
/// used, and a graph of a decode step that was run.
class Trial {
public:
    Trial() = default;
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    ~Trial() {
        blas_ = cuda::Blas();  // before its stream
        if (made_ != nullptr) cudaGraphExecDestroy(made_);
        if (recorded_ != nullptr) cudaGraphDestroy(recorded_);
        if (copy_ != nullptr) cudaStreamDestroy(copy_);
        if (compute_ != nullptr) cudaStreamDestroy(compute_);
    }

    cudaError_t make() {
        cudaError_t status = cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking);
        if (status == cudaSuccess)
            status = cudaStreamCreateWithFlags(&copy_, cudaStreamNonBlocking);
        if (status == cudaSuccess) status = multiply();
        if (status == cudaSuccess) status = record();
        return status;
    }

private:
    /// The matrices and cuBLAS's workspace belong to an arena and are given back.
    cudaError_t multiply() {
        void* bytes = nullptr;
        cudaError_t status = cudaMalloc(&bytes, 4 * kTrialMatrixBytes);
        if (status != cudaSuccess) return status;
        char* matrices = static_cast<char*>(bytes);
        status = cudaMemsetAsync(bytes, 0, 4 * kTrialMatrixBytes, compute_);
        const cuda::Launch launch{.stream = compute_};
        const cuda::DeviceProblem opened =
            cuda::Blas::open(launch, matrices + 3 * kTrialMatrixBytes, kTrialMatrixBytes, blas_);
        if (status == cudaSuccess && opened.is_none()) {
            blas_.product({.weight = {nullptr, WeightType::f16, kTrialWidth, kTrialWidth},
                           .fp16_weight = matrices,
                           .input = matrices + kTrialMatrixBytes,
                           .output = matrices + 2 * kTrialMatrixBytes,
                           .output_type = cuda::ElementType::f16,
                           .n_tokens = kTrialWidth});
            status = cudaStreamSynchronize(compute_);
        }
        cudaFree(bytes);
        return opened.is_none() ? status : cudaErrorMemoryAllocation;
    }

    cudaError_t record() {
        const cuda::Launch launch{.stream = compute_,
                                  .state = nullptr,
                                  .n_multiprocessors = 0,
                                  .overlaps_previous = true};
        cudaError_t status = cudaStreamBeginCapture(compute_, cudaStreamCaptureModeThreadLocal);
        if (status != cudaSuccess) return status;
        for (int node = 0; node < kTrialNodes; ++node)
            cuda::launch_kernel(trial_kernel, {.grid = 1, .block = 32}, launch, TrialParams{});
        status = cudaStreamEndCapture(compute_, &recorded_);
        if (status == cudaSuccess) status = cudaGraphInstantiate(&made_, recorded_, 0);
        if (status == cudaSuccess) status = cudaGraphUpload(made_, compute_);
        if (status == cudaSuccess) status = cudaGraphLaunch(made_, compute_);
        if (status == cudaSuccess) status = cudaStreamSynchronize(compute_);
        return status;
    }

    cudaStream_t compute_ = nullptr;
    cudaStream_t copy_ = nullptr;
    cudaGraph_t recorded_ = nullptr;
    cudaGraphExec_t made_ = nullptr;
    cuda::Blas blas_;
};

cudaError_t describe(int index, GpuFacts& gpu) {
    cudaDeviceProp properties{};
    cudaError_t status = cudaGetDeviceProperties(&properties, index);
    if (status != cudaSuccess) return status;
    std::size_t free_bytes = 0, total_bytes = 0;
    status = cudaSetDevice(index);
    Trial trial;
    if (status == cudaSuccess) status = trial.make();
    if (status == cudaSuccess) status = cudaMemGetInfo(&free_bytes, &total_bytes);
    int clock_khz = 0;
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index);
    gpu = {.index = static_cast<std::uint32_t>(index),
           .name = properties.name,
           .compute_major = static_cast<std::uint32_t>(properties.major),
           .compute_minor = static_cast<std::uint32_t>(properties.minor),
           .total_bytes = total_bytes,
           .free_bytes = free_bytes,
           .n_multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount),
           .clock_hz = clock_khz * 1e3,
           .shares_host_memory = properties.integrated != 0};
    return status;
}

cudaError_t time_copies(std::uint64_t free_bytes, GpuRates& rates) {
    // A quarter of what is free, so that measuring a nearly full card does not fail for want of
    // room.
    const std::uint64_t copy_bytes = std::min(kCopyBytesMax, free_bytes / 4);
    const std::uint64_t pinned_bytes = std::min(kPinnedBytesMax, copy_bytes);
    if (copy_bytes < kCopyBytesMin) return cudaErrorMemoryAllocation;
    Buffers buffers;
    double copy_seconds = 0, to_device_seconds = 0, to_host_seconds = 0;
    cudaError_t status = buffers.make(copy_bytes, pinned_bytes);
    if (status == cudaSuccess)
        status = buffers.time_copy(buffers.device() + copy_bytes, buffers.device(), copy_bytes,
                                   copy_seconds);
    if (status == cudaSuccess)
        status =
            buffers.time_copy(buffers.device(), buffers.host(), pinned_bytes, to_device_seconds);
    if (status == cudaSuccess)
        status = buffers.time_copy(buffers.host(), buffers.device(), pinned_bytes, to_host_seconds);
    if (status != cudaSuccess) return status;
    rates.memory_bytes_per_s = 2.0 * static_cast<double>(copy_bytes) / copy_seconds;
    rates.host_to_device_bytes_per_s = static_cast<double>(pinned_bytes) / to_device_seconds;
    rates.device_to_host_bytes_per_s = static_cast<double>(pinned_bytes) / to_host_seconds;
    return cudaSuccess;
}

}  // namespace

GpuList list_gpus() {
    cuda::load_kernels_with_context();
    GpuList list;
    // Asked for GPUs without a driver, CUDA complains of the driver's version.
    int driver_version = 0;
    if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version == 0) {
        list.problem = "no NVIDIA driver";
        return list;
    }
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice) {
        cudaGetLastError();
        return list;
    }
    if (status != cudaSuccess) {
        list.problem = problem_of(status, "CUDA");
        return list;
    }
    for (int index = 0; index < count; ++index) {
        GpuFacts gpu;
        status = describe(index, gpu);
        if (status != cudaSuccess) {
            const std::string device = "cuda:" + std::to_string(index);
            return {.gpus = {}, .problem = problem_of(status, device.c_str())};
        }
        list.gpus.push_back(gpu);
    }
    return list;
}

GpuRates measure_gpu(std::uint32_t index) {
    cuda::load_kernels_with_context();
    GpuRates rates;
    std::size_t free_bytes = 0, total_bytes = 0;
    cudaError_t status = cudaSetDevice(static_cast<int>(index));
    if (status == cudaSuccess) status = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (status == cudaSuccess) status = time_copies(free_bytes, rates);
    if (status != cudaSuccess) rates.problem = problem_of(status, "timing copies");
    return rates;
}

}  // namespace plimsoll::kernels
