#include "runtime/products.hpp"

#include <algorithm>

namespace plimsoll {
namespace {

BufferRole role_of(const ActivationRoles& roles, kernels::ActivationFormat format) {
    switch (format) {
        case kernels::ActivationFormat::f32: return roles.f32;
        case kernels::ActivationFormat::q16: return roles.q16;
        case kernels::ActivationFormat::q16k: return roles.q16k;
    }
    return roles.f32;
}

}  // namespace

const void* input_rows(const ForwardStep& step, const ActivationRoles& roles,
                       kernels::WeightType type) {
    return step.buffer<std::byte>(
        role_of(roles, kernels::activation_format(type, step.setting.mode)));
}

void quantize_for(const ForwardStep& step, const ActivationRoles& roles, std::uint32_t n,
                  std::initializer_list<kernels::WeightType> types) {
    for (const kernels::ActivationFormat format :
         {kernels::ActivationFormat::q16, kernels::ActivationFormat::q16k}) {
        const bool is_wanted = std::any_of(types.begin(), types.end(), [&](auto type) {
            return kernels::activation_format(type, step.setting.mode) == format;
        });
        if (!is_wanted) continue;
        kernels::cpu::quantize_activations(
            {step.floats(roles.f32), step.buffer<std::byte>(role_of(roles, format)), step.n_tokens,
             n, format},
            step.workers());
    }
}

void multiply(const ForwardStep& step, const kernels::WeightMatrix& weight,
              const ActivationRoles& roles, float* output, std::uint32_t n_groups) {
    kernels::MatmulParams product{};
    product.weight = weight;
    product.input = input_rows(step, roles, weight.type);
    product.output = output;
    product.n_tokens = step.n_tokens;
    product.n_groups = n_groups;
    product.input_format = kernels::activation_format(weight.type, step.setting.mode);
    kernels::cpu::matmul(product, step.workers());
}

void multiply_f32(const ForwardStep& step, const kernels::WeightMatrix& weight, BufferRole rows,
                  float* output) {
    kernels::MatmulParams product{};
    product.weight = weight;
    product.input = step.floats(rows);
    product.output = output;
    product.n_tokens = step.n_tokens;
    kernels::cpu::matmul(product, step.workers());
}

}  // namespace plimsoll
