#include <cublas_v2.h>

#include <utility>

#include "kernels/check.hpp"
#include "kernels/cuda/blas.hpp"

namespace plimsoll::kernels::cuda {

Blas::Blas() = default;
Blas::~Blas() {
    if (handle_ != nullptr) cublasDestroy(static_cast<cublasHandle_t>(handle_));
}
Blas::Blas(Blas&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Blas& Blas::operator=(Blas&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
}

DeviceProblem Blas::open(const Launch& launch, void* workspace, std::uint64_t workspace_bytes,
                         Blas& out) {
    cublasHandle_t handle = nullptr;
    cublasStatus_t status = cublasCreate(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetStream(handle, launch.stream);
    // Behind the stream, since setting that takes the workspace back.
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetWorkspace(handle, workspace, workspace_bytes);
    Blas made;
    made.handle_ = handle;
    if (status != CUBLAS_STATUS_SUCCESS)
        return {std::string("cuBLAS: ") + cublasGetStatusString(status), false};
    out = std::move(made);
    return {};
}

void Blas::product(const ProductParams& params) const {
    PLIMSOLL_KERNEL_CHECK(params.fp16_weight != nullptr && !params.accumulate &&
                              params.input_type == ElementType::f16,
                          "cuBLAS multiplies float16 copies");
    // cuBLAS has columns where rows are meant here: output^T [n_out, T] = weight . input^T, with
    // the weight's rows as the columns of its transpose. A group is a batch.
    const auto n_in = static_cast<int>(params.weight.n_in);
    const auto n_out = static_cast<int>(params.weight.n_out / params.n_groups);
    const auto n_groups = static_cast<int>(params.n_groups);
    const std::uint64_t stride =
        params.output_stride != 0 ? params.output_stride : params.weight.n_out;
    const float one = 1, zero = 0;
    const cublasStatus_t status = cublasGemmStridedBatchedEx(
        static_cast<cublasHandle_t>(handle_), CUBLAS_OP_T, CUBLAS_OP_N, n_out,
        static_cast<int>(params.n_tokens), n_in, &one, params.fp16_weight, CUDA_R_16F, n_in,
        static_cast<long long>(n_out) * n_in, params.input, CUDA_R_16F, n_in * n_groups, n_in,
        &zero, params.output, params.output_type == ElementType::f16 ? CUDA_R_16F : CUDA_R_32F,
        static_cast<int>(stride), n_out, n_groups, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    PLIMSOLL_KERNEL_CHECK(status == CUBLAS_STATUS_SUCCESS, cublasGetStatusString(status));
}

}  // namespace plimsoll::kernels::cuda
