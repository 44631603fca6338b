#include "kernels/cuda/decode_f32.cuh"
#include "kernels/cuda/ops.hpp"

// A few microseconds a chunk: 2,048 tokens write 128 MB of streams once.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 128;

/// A thread eight elements of a token, in all its streams.
template <WeightType kType>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const EmbedParams params, const WeightPlanes planes, const StepState* state) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t hidden = params.table.n_in;
    const std::uint32_t e = (blockIdx.y * kThreads + threadIdx.x) * 8;
    if (e >= hidden) return;
    const std::int32_t id = params.ids != nullptr ? params.ids[blockIdx.x] : state->token;
    if (static_cast<std::uint32_t>(id) >= params.table.n_out) __trap();  // outside the vocabulary
    float v[8];
    decode_eight_f32<kType>(planes, static_cast<std::uint64_t>(id), hidden, e, v);
    float* streams = params.streams + std::uint64_t{blockIdx.x} * params.n_streams * hidden + e;
    for (std::uint32_t s = 0; s < params.n_streams; ++s) {
        auto* to = reinterpret_cast<float4*>(streams + std::uint64_t{s} * hidden);
        to[0] = make_float4(v[0], v[1], v[2], v[3]);
        to[1] = make_float4(v[4], v[5], v[6], v[7]);
    }
}

using EmbedKernel = void (*)(EmbedParams, WeightPlanes, const StepState*);
EmbedKernel embed_kernel_of(WeightType type) {
    switch (type) {
        case WeightType::f32: return embed_kernel<WeightType::f32>;
        case WeightType::f16: return embed_kernel<WeightType::f16>;
        case WeightType::bf16: return embed_kernel<WeightType::bf16>;
        case WeightType::q8_0: return embed_kernel<WeightType::q8_0>;
        case WeightType::q2_k: return embed_kernel<WeightType::q2_k>;
        case WeightType::q4_k: return embed_kernel<WeightType::q4_k>;
        case WeightType::iq2_xxs: return embed_kernel<WeightType::iq2_xxs>;
    }
    return nullptr;
}

}  // namespace

void embed(const EmbedParams& params, const Launch& launch) {
    const std::uint32_t hidden = params.table.n_in;
    PLIMSOLL_KERNEL_CHECK(hidden % 8 == 0, "the hidden size is a multiple of 8");
    PLIMSOLL_KERNEL_CHECK(params.ids != nullptr || params.n_tokens <= 1,
                          "only a single token comes from the step's state");
    launch_kernel(embed_kernel_of(params.table.type),
                  {.grid = {params.n_tokens, (hidden / 8 + kThreads - 1) / kThreads, 1},
                   .block = {kThreads, 1, 1}},
                  launch, params, planes_of(params.table), launch.state);
}

}  // namespace plimsoll::kernels::cuda
