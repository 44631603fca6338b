#pragma once

#include <cstdint>
#include <initializer_list>

#include "runtime/forward_step.hpp"

namespace plimsoll {

/// Rows of one activation: float32, and what the fast mode made of them. Roles of buffers that the
/// phase lacks are never read, since then no weight of the phase wants that form.
struct ActivationRoles {
    BufferRole f32;
    BufferRole q16;   // for weights in blocks of 32
    BufferRole q16k;  // for weights in blocks of 256
};

inline constexpr ActivationRoles kAttnIn = {BufferRole::attn_in, BufferRole::attn_in_q16,
                                            BufferRole::attn_in_q16k};
inline constexpr ActivationRoles kQLora = {BufferRole::q_lora, BufferRole::q_lora_q16,
                                           BufferRole::q_lora_q16k};
inline constexpr ActivationRoles kAttnOut = {BufferRole::q, BufferRole::attn_out_q16,
                                             BufferRole::attn_out_q16k};
inline constexpr ActivationRoles kAttnLow = {BufferRole::attn_low, BufferRole::attn_low_q16,
                                             BufferRole::attn_low_q16k};
inline constexpr ActivationRoles kFfnIn = {BufferRole::ffn_in, BufferRole::ffn_in_q16,
                                           BufferRole::ffn_in_q16k};
inline constexpr ActivationRoles kHeadIn = {BufferRole::head_in, BufferRole::head_in_q16,
                                            BufferRole::head_in_q16k};

/// The rows in the form that a weight of this type takes in the step's mode.
[[nodiscard]] const void* input_rows(const ForwardStep& step, const ActivationRoles& roles,
                                     kernels::WeightType type);

/// Makes the forms that these weights take, each once. `n` is the length of a row.
void quantize_for(const ForwardStep& step, const ActivationRoles& roles, std::uint32_t n,
                  std::initializer_list<kernels::WeightType> types);

/// output = rows . weight, over the rows in the form that the weight takes.
void multiply(const ForwardStep& step, const kernels::WeightMatrix& weight,
              const ActivationRoles& roles, float* output, std::uint32_t n_groups = 1);

/// The same from the float32 rows, in either mode: routers, compressors and the indexer choose by
/// small differences.
void multiply_f32(const ForwardStep& step, const kernels::WeightMatrix& weight, BufferRole rows,
                  float* output);

}  // namespace plimsoll
