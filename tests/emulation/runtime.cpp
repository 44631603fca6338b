#include <cuda_runtime.h>

#include <cstdlib>
#include <utility>
#include <vector>

struct CUgraph_st {
    std::vector<std::function<void()>> nodes;
};
struct CUgraphExec_st {
    std::vector<std::function<void()>> nodes;
};

namespace {

cudaGraph_t captured = nullptr;  // while a graph is captured

}  // namespace

void plimsoll::emulation::enqueue(std::function<void()> work) {
    if (captured != nullptr)
        captured->nodes.push_back(std::move(work));
    else
        work();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
    if (captured != nullptr) return cudaErrorInvalidValue;
    captured = new CUgraph_st;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
    *graph = std::exchange(captured, nullptr);
    return *graph != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* n_nodes) {
    *n_nodes = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    *made = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t) {
    for (const std::function<void()>& node : made->nodes) node();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made) {
    delete made;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** to, std::size_t n_bytes) {
    constexpr std::size_t kAlignmentBytes = 256;
    const std::size_t size = (n_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    *to = std::aligned_alloc(kAlignmentBytes, size == 0 ? kAlignmentBytes : size);
    if (*to == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*to, 0xFF, size);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** to, std::size_t n_bytes, unsigned) {
    return cudaMalloc(to, n_bytes);
}

cudaError_t cudaFree(void* from) {
    std::free(from);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void* from) { return cudaFree(from); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0) return cudaErrorInvalidValue;
    *properties = {};
    std::strcpy(properties->name, "emulated");
    properties->totalGlobalMem = std::size_t{1} << 32;
    properties->sharedMemPerBlockOptin = plimsoll::emulation::kSharedBytesMax;
    properties->multiProcessorCount = static_cast<int>(plimsoll::emulation::kMultiprocessors);
    properties->major = 9;
    return cudaSuccess;
}
