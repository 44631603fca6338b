#include <cuda_runtime.h>

#include <utility>

#include "kernels/check.hpp"
#include "kernels/cuda/context.cuh"
#include "kernels/cuda/device.hpp"

namespace plimsoll::kernels::cuda {
namespace {

DeviceProblem problem_of(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return {};
    cudaGetLastError();
    return {std::string(what) + ": " + cudaGetErrorString(status), is_context_lost(status)};
}

}  // namespace

struct Device::Parts {
    int index = 0;
    std::uint32_t n_multiprocessors = 0;
    cudaStream_t compute = nullptr;
    cudaStream_t copy = nullptr;
    cudaEvent_t copied[kLoadSlots] = {};
    cudaEvent_t used[kLoadSlots] = {};
    cudaEvent_t timing[2] = {};
    std::uint64_t n_allocations = 0;
    DeviceProblem first;  // of calls that report nothing themselves

    void note(cudaError_t status, const char* what) {
        if (status != cudaSuccess && first.is_none()) first = problem_of(status, what);
    }
    DeviceProblem take(cudaError_t status, const char* what) {
        note(status, what);
        return std::exchange(first, {});
    }
    cudaError_t make();
    ~Parts();
};

cudaError_t Device::Parts::make() {
    cudaDeviceProp properties{};
    cudaError_t status = cudaSetDevice(index);
    if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, index);
    n_multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount);
    if (status == cudaSuccess) status = cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
    if (status == cudaSuccess) status = cudaStreamCreateWithFlags(&copy, cudaStreamNonBlocking);
    for (std::uint32_t slot = 0; slot < kLoadSlots && status == cudaSuccess; ++slot) {
        status = cudaEventCreateWithFlags(&copied[slot], cudaEventDisableTiming);
        if (status == cudaSuccess)
            status = cudaEventCreateWithFlags(&used[slot], cudaEventDisableTiming);
    }
    for (cudaEvent_t& event : timing)
        if (status == cudaSuccess) status = cudaEventCreate(&event);
    return status;
}

Device::Parts::~Parts() {
    for (std::uint32_t slot = 0; slot < kLoadSlots; ++slot) {
        if (copied[slot] != nullptr) cudaEventDestroy(copied[slot]);
        if (used[slot] != nullptr) cudaEventDestroy(used[slot]);
    }
    for (cudaEvent_t event : timing)
        if (event != nullptr) cudaEventDestroy(event);
    if (copy != nullptr) cudaStreamDestroy(copy);
    if (compute != nullptr) cudaStreamDestroy(compute);
}

Device::Device() = default;
Device::~Device() = default;
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&&) noexcept = default;

DeviceProblem Device::open(std::uint32_t index, Device& out) {
    load_kernels_with_context();
    auto parts = std::make_unique<Parts>();
    parts->index = static_cast<int>(index);
    const cudaError_t status = parts->make();
    if (status != cudaSuccess) return problem_of(status, "opening the device");
    out.parts_ = std::move(parts);
    return {};
}

std::uint64_t Device::free_bytes() const {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return free;
}

std::uint64_t Device::total_bytes() const {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return total;
}

Launch Device::launch(StepState* state) const {
    return {
        .stream = parts_->compute, .state = state, .n_multiprocessors = parts_->n_multiprocessors};
}

DeviceMemory::~DeviceMemory() {
    if (data_ == nullptr) return;
    if (is_pinned_host_)
        cudaFreeHost(data_);
    else
        cudaFree(data_);
}
DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      is_pinned_host_(other.is_pinned_host_) {}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(is_pinned_host_, other.is_pinned_host_);
    return *this;
}

DeviceProblem Device::allocate(std::uint64_t size_bytes, DeviceMemory& out) {
    DeviceMemory memory;
    if (size_bytes != 0) {
        void* data = nullptr;
        const cudaError_t status = cudaMalloc(&data, size_bytes);
        if (status != cudaSuccess) return problem_of(status, "allocating device memory");
        memory.data_ = static_cast<std::byte*>(data);
        ++parts_->n_allocations;
    }
    memory.size_bytes_ = size_bytes;
    out = std::move(memory);
    return {};
}

DeviceProblem Device::allocate_pinned(std::uint64_t size_bytes, DeviceMemory& out) {
    DeviceMemory memory;
    memory.is_pinned_host_ = true;
    if (size_bytes != 0) {
        void* data = nullptr;
        const cudaError_t status = cudaHostAlloc(&data, size_bytes, cudaHostAllocDefault);
        if (status != cudaSuccess) return problem_of(status, "pinning host memory");
        memory.data_ = static_cast<std::byte*>(data);
        ++parts_->n_allocations;
    }
    memory.size_bytes_ = size_bytes;
    out = std::move(memory);
    return {};
}

std::uint64_t Device::n_allocations() const { return parts_->n_allocations; }

void Device::copy_to_device(void* to, const void* from_host, std::uint64_t size_bytes) {
    parts_->note(
        cudaMemcpyAsync(to, from_host, size_bytes, cudaMemcpyHostToDevice, parts_->compute),
        "copying to the device");
}
void Device::copy_to_host(void* to_host, const void* from, std::uint64_t size_bytes) {
    parts_->note(
        cudaMemcpyAsync(to_host, from, size_bytes, cudaMemcpyDeviceToHost, parts_->compute),
        "copying to the host");
}
void Device::copy_within_device(void* to, const void* from, std::uint64_t size_bytes) {
    parts_->note(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, parts_->compute),
                 "copying on the device");
}
void Device::fill_zero(void* to, std::uint64_t size_bytes) {
    parts_->note(cudaMemsetAsync(to, 0, size_bytes, parts_->compute), "clearing device memory");
}

DeviceProblem Device::wait() {
    return parts_->take(cudaStreamSynchronize(parts_->compute), "computing");
}

void Device::copy_slot_to_device(std::uint32_t slot, void* to, const void* from_host,
                                 std::uint64_t size_bytes) {
    parts_->note(cudaStreamWaitEvent(parts_->copy, parts_->used[slot]), "waiting for a slot");
    parts_->note(cudaMemcpyAsync(to, from_host, size_bytes, cudaMemcpyHostToDevice, parts_->copy),
                 "copying to the device");
    parts_->note(cudaEventRecord(parts_->copied[slot], parts_->copy), "recording a copy");
}
void Device::compute_behind_slot(std::uint32_t slot) {
    parts_->note(cudaStreamWaitEvent(parts_->compute, parts_->copied[slot]), "waiting for a copy");
}
void Device::mark_slot_used(std::uint32_t slot) {
    parts_->note(cudaEventRecord(parts_->used[slot], parts_->compute), "recording a use");
}
DeviceProblem Device::wait_for_slot_copy(std::uint32_t slot) {
    return parts_->take(cudaEventSynchronize(parts_->copied[slot]), "copying to the device");
}

Graph::Graph() = default;
Graph::~Graph() {
    if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}
Graph::Graph(Graph&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), n_nodes_(other.n_nodes_) {}
Graph& Graph::operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(n_nodes_, other.n_nodes_);
    return *this;
}

void Device::begin_capture() {
    parts_->note(cudaStreamBeginCapture(parts_->compute, cudaStreamCaptureModeThreadLocal),
                 "beginning a graph");
}

DeviceProblem Device::end_capture(Graph& out) {
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t made = nullptr;
    std::size_t n_nodes = 0;
    cudaError_t status = cudaStreamEndCapture(parts_->compute, &recorded);
    if (status == cudaSuccess) status = cudaGraphGetNodes(recorded, nullptr, &n_nodes);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&made, recorded, 0);
    // Otherwise the first launch would allocate.
    if (status == cudaSuccess) status = cudaGraphUpload(made, parts_->compute);
    if (recorded != nullptr) cudaGraphDestroy(recorded);
    DeviceProblem problem = parts_->take(status, "recording a graph");
    if (!problem.is_none()) return problem;
    Graph graph;
    graph.handle_ = made;
    graph.n_nodes_ = n_nodes;
    out = std::move(graph);
    return {};
}

void Device::launch(const Graph& graph) {
    parts_->note(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle_), parts_->compute),
                 "launching a graph");
}

void Device::start_timing() {
    parts_->note(cudaEventRecord(parts_->timing[0], parts_->compute), "timing");
}

double Device::stop_timing_seconds() {
    float milliseconds = 0;
    parts_->note(cudaEventRecord(parts_->timing[1], parts_->compute), "timing");
    parts_->note(cudaEventSynchronize(parts_->timing[1]), "timing");
    parts_->note(cudaEventElapsedTime(&milliseconds, parts_->timing[0], parts_->timing[1]),
                 "timing");
    return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace plimsoll::kernels::cuda
