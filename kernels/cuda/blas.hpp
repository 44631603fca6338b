#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {

/// Products of float16 rows with the fp16 cache's copies by cuBLAS, which reaches more of the
/// tensor cores' rate than a kernel that decodes its weights.
class Blas {
public:
    Blas();
    ~Blas();
    Blas(Blas&&) noexcept;
    Blas& operator=(Blas&&) noexcept;

    /// Makes the handle for the stream of `launch` on the current device. cuBLAS gets `workspace`,
    /// device memory that outlives this object, and allocates nothing of its own in `product`.
    [[nodiscard]] static DeviceProblem open(const Launch& launch, void* workspace,
                                            std::uint64_t workspace_bytes, Blas& out);

    [[nodiscard]] bool is_open() const { return handle_ != nullptr; }

    /// As kernels::cuda::product, for params with `fp16_weight` and float16 input in the fast mode,
    /// without `accumulate`. A float16 output is not clamped.
    void product(const ProductParams& params) const;

private:
    void* handle_ = nullptr;  // cublasHandle_t
};

}  // namespace plimsoll::kernels::cuda
