#pragma once

#include <cuda_runtime.h>

#include <cstdlib>

namespace plimsoll::kernels::cuda {

/// To be called before CUDA is used. All kernels are then loaded with a context: what they take is
/// seen before planning, and no first launch allocates. The driver reads this once, when it starts.
inline void load_kernels_with_context() { setenv("CUDA_MODULE_LOADING", "EAGER", 1); }

/// Errors after which every call on the context fails with the same one (CUDA Runtime API, error
/// codes): the process must end.
[[nodiscard]] inline bool is_context_lost(cudaError_t status) {
    switch (status) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
        case cudaErrorECCUncorrectable: return true;
        default: return false;
    }
}

}  // namespace plimsoll::kernels::cuda
