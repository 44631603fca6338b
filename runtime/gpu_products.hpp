#pragma once

#include "runtime/gpu_step.hpp"

namespace plimsoll {

/// Rows of one activation of a chunk: float32, and what the fast mode keeps of them.
struct GpuActivation {
    BufferRole f32;
    BufferRole f16;
};
inline constexpr GpuActivation kGpuAttnIn = {BufferRole::attn_in, BufferRole::attn_in_f16};
inline constexpr GpuActivation kGpuQLora = {BufferRole::q_lora, BufferRole::q_lora_f16};
inline constexpr GpuActivation kGpuAttnOut = {BufferRole::q, BufferRole::attn_out_f16};
inline constexpr GpuActivation kGpuAttnLow = {BufferRole::attn_low, BufferRole::attn_low_f16};
inline constexpr GpuActivation kGpuFfnIn = {BufferRole::ffn_in, BufferRole::ffn_in_f16};
inline constexpr GpuActivation kGpuHeadIn = {BufferRole::head_in, BufferRole::head_in_f16};

namespace gpu {

/// output = rows . weight in the step's arithmetic: from float16 rows in the fast mode, from
/// float32 rows in the precise one.
void multiply(const GpuStep& step, const kernels::WeightMatrix& weight, const GpuActivation& rows,
              void* output, kernels::cuda::ElementType output_type, std::uint32_t n_groups = 1);

/// The same from the float32 rows in either mode: routers, compressors and the indexer choose by
/// small differences.
void multiply_f32(const GpuStep& step, const kernels::WeightMatrix& weight, BufferRole rows,
                  float* output);

}  // namespace gpu
}  // namespace plimsoll
