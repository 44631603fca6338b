#include "runtime/gpu_products.hpp"

#include <algorithm>

namespace plimsoll::gpu {
namespace {

namespace c = kernels::cuda;

/// Below, a kernel that reads the quantised weights is faster than cuBLAS with their copies.
constexpr std::uint32_t kBlasTokensMin = 64;

/// The fp16 cache's copy of a weight, or null.
const void* fp16_copy(const GpuStep& step, const kernels::WeightMatrix& weight) {
    if (step.layer == nullptr) return nullptr;
    for (const Fp16Copy& copy : step.layer->fp16_copies)
        if (copy.of == weight.data) return copy.data;
    return nullptr;
}

/// Weights that are not quantised meet float32 rows in the fast mode too, as on the CPU, where the
/// step still has them.
bool takes_float32(const GpuStep& step, const kernels::WeightMatrix& weight,
                   const GpuActivation& rows) {
    const bool is_plain = kernels::info_of(weight.type).block_elements == 1;
    // In the fast mode `q` holds float16 rows of its own.
    return is_plain && rows.f32 != BufferRole::q && step.floats(rows.f32) != nullptr;
}

}  // namespace

void multiply(const GpuStep& step, const kernels::WeightMatrix& weight, const GpuActivation& rows,
              void* output, c::ElementType output_type, std::uint32_t n_groups) {
    c::ProductParams params;
    params.weight = weight;
    params.arithmetic = step.setting.arithmetic;
    if (step.is_precise() || takes_float32(step, weight, rows)) {
        params.input = step.floats(rows.f32);
        params.input_type = c::ElementType::f32;
    } else {
        params.input = step.buffer<void>(rows.f16);
        if (step.n_tokens >= kBlasTokensMin) params.fp16_weight = fp16_copy(step, weight);
    }
    params.output = output;
    params.output_type = output_type;
    params.n_tokens = step.n_tokens;
    params.n_groups = n_groups;
    if (params.fp16_weight != nullptr)
        step.setting.blas.product(params);
    else
        c::product(params, step.launch);
}

void multiply_f32(const GpuStep& step, const kernels::WeightMatrix& weight, BufferRole rows,
                  float* output) {
    c::ProductParams params;
    params.weight = weight;
    params.arithmetic = step.setting.arithmetic;
    params.input = step.floats(rows);
    params.input_type = c::ElementType::f32;
    params.output = output;
    params.n_tokens = step.n_tokens;
    c::product(params, step.launch);
}

}  // namespace plimsoll::gpu
