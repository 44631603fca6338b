#include <cuda_runtime.h>

#include <cstdlib>

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
