#pragma once

// The table of one instruction set. A leaf file is this header and the function that returns it.

#include "kernels/cpu/decode_impl.hpp"
#include "kernels/cpu/dot_f32_impl.hpp"
#include "kernels/cpu/dot_integer_impl.hpp"
#include "kernels/cpu/vector_impl.hpp"

namespace plimsoll::kernels::cpu {
namespace {

constexpr DotKernel kDotKernels[] = {
    {WeightType::f32, ActivationFormat::f32, dot_f32<decode_f32>},
    {WeightType::f16, ActivationFormat::f32, dot_f32<decode_f16>},
    {WeightType::bf16, ActivationFormat::f32, dot_f32<decode_bf16>},
    {WeightType::q8_0, ActivationFormat::f32, dot_f32<decode_q8_0>},
    {WeightType::q2_k, ActivationFormat::f32, dot_f32<decode_blocks<Q2K>>},
    {WeightType::q4_k, ActivationFormat::f32, dot_f32<decode_blocks<Q4K>>},
    {WeightType::iq2_xxs, ActivationFormat::f32, dot_f32<decode_blocks<Iq2Xxs>>},
    {WeightType::q8_0, ActivationFormat::q16, dot_q8_0},
    {WeightType::q2_k, ActivationFormat::q16k, dot_q16k<Q2K>},
    {WeightType::q4_k, ActivationFormat::q16k, dot_q16k<Q4K>},
    {WeightType::iq2_xxs, ActivationFormat::q16k, dot_q16k<Iq2Xxs>},
};

constexpr Leaf make_leaf(const char* isa) {
    return {isa,          kDotKernels, sizeof(kDotKernels) / sizeof(kDotKernels[0]),
            decode,       dot_rows,    accumulate_rows,
            sum_squares,  exp_values,  quantize_q16,
            quantize_q16k};
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
