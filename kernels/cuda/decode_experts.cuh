#pragma once

// What the two launches of a decoded token's experts share.

#include "kernels/cuda/band_stream.cuh"
#include "kernels/cuda/choose_experts.cuh"
#include "kernels/cuda/decode.hpp"

namespace plimsoll::kernels::cuda {

/// A matrix or, with a stride, the first of many.
struct Planes {
    WeightPlanes first;
    std::uint64_t stride_bytes;

    __device__ WeightPlanes of(std::uint64_t expert) const {
        const std::uint64_t offset = expert * stride_bytes;
        return {first.quants + offset, first.scales + offset, first.tail + offset};
    }
};

struct Experts {
    Planes gate, up, down, shared_down;
    WeightType gate_type, down_type, shared_down_type;
    RouterInput router;  // table_row: the whole table
    const StepState* state;
    const float* input;
    float* mid;
    std::int32_t* expert_ids;
    float* expert_weights;
    float* output;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    std::uint32_t n_blocks_per_slot;
    float clamp;
};

inline void check_shapes(const DecodeExpertsParams& params) {
    check_matrix(params.gate, params.hidden, params.ff_dim);
    check_matrix(params.up, params.hidden, params.ff_dim);
    check_matrix(params.down, params.ff_dim, params.hidden);
    check_matrix(params.shared_down, params.ff_dim, params.hidden);
    PLIMSOLL_KERNEL_CHECK(params.gate.type == params.up.type, "gate and up have one type");
    PLIMSOLL_KERNEL_CHECK(params.n_experts <= kExpertsMax, "more experts than supported");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used <= params.n_experts,
                          "more experts used than there are");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used <= kExpertsUsedMax,
                          "more experts used than supported");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used > 0, "no routed expert is used");
}

inline Experts experts_of(const DecodeExpertsParams& params, const Launch& launch) {
    const auto planes = [&](const WeightMatrix& weight, std::uint64_t stride_bytes) {
        return Planes{planes_of(weight), stride_bytes};
    };
    Experts experts{};
    experts.gate = planes(params.gate, params.expert_stride_bytes);
    experts.up = planes(params.up, params.expert_stride_bytes);
    experts.down = planes(params.down, params.expert_stride_bytes);
    experts.shared_down = planes(params.shared_down, 0);
    experts.gate_type = params.gate.type;
    experts.down_type = params.down.type;
    experts.shared_down_type = params.shared_down.type;
    experts.router = {params.logits,    params.bias,           params.table,
                      params.n_experts, params.n_experts_used, params.weights_scale};
    experts.state = launch.state;
    experts.input = params.input;
    experts.mid = params.mid;
    experts.expert_ids = params.expert_ids;
    experts.expert_weights = params.expert_weights;
    experts.output = params.output;
    experts.hidden = params.hidden;
    experts.ff_dim = params.ff_dim;
    experts.clamp = params.clamp;
    return experts;
}

}  // namespace plimsoll::kernels::cuda
