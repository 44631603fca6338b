#include "runtime/gpu_ops.hpp"
#include "runtime/gpu_products.hpp"

namespace plimsoll::gpu {
namespace {

using R = BufferRole;
namespace k = kernels;
namespace c = kernels::cuda;

/// What routed and shared experts have in common. Weights that are not quantised meet float32 rows
/// in the fast mode too, as on the CPU.
c::ExpertFfnGpuParams expert_params(const GpuStep& step, const k::WeightMatrix& down) {
    const bool is_precise = step.is_precise() || k::info_of(down.type).block_elements == 1;
    c::ExpertFfnGpuParams params{};
    params.input = is_precise ? step.buffer<void>(R::ffn_in) : step.buffer<void>(R::ffn_in_f16);
    params.output = step.floats(R::sublayer_out);
    params.n_tokens = step.n_tokens;
    params.hidden = step.hyper().hidden_size;
    params.ff_dim = step.hyper().expert_ff_dim;
    params.clamp = step.layer->swiglu_clamp;
    params.arithmetic = is_precise ? c::Arithmetic::precise : c::Arithmetic::fast;
    return params;
}

}  // namespace

void hc_ffn(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    c::hc_mix({weights.hc_ffn_fn, weights.hc_ffn_base, weights.hc_ffn_scale, weights.ffn_norm,
               step.streams, step.floats(R::ffn_in), step.floats(R::hc_coefficients), step.n_tokens,
               hyper.n_streams, hyper.hidden_size, hyper.sinkhorn_iterations, hyper.rms_epsilon,
               hyper.hc_epsilon},
              step.buffer<void>(R::ffn_in_f16), step.launch);
}

void router(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    multiply_f32(step, weights.router, R::ffn_in, step.floats(R::router_logits));
    c::route({step.floats(R::router_logits), weights.router_bias, weights.router_table,
              step.token_ids, step.ids(R::expert_ids), step.floats(R::expert_weights),
              step.n_tokens, hyper.n_experts, hyper.n_experts_used, hyper.expert_weights_scale},
             step.launch);
    c::group_by_expert({.groups = {step.ids(R::expert_ids), step.ids(R::expert_offsets),
                                   step.ids(R::expert_assignments), step.n_tokens, hyper.n_experts,
                                   hyper.n_experts_used},
                        .tiles = step.ids(R::expert_tiles)},
                       step.launch);
}

void experts(const GpuStep& step) {
    const LayerExperts& layer = step.layer->experts;
    c::ExpertFfnGpuParams params = expert_params(step, layer.down);
    params.gate = layer.gate;
    params.up = layer.up;
    params.down = layer.down;
    params.gate.data = layer.device_slots.data();
    params.up.data = layer.device_slots.data() + layer.up_offset_bytes;
    params.down.data = layer.device_slots.data() + layer.down_offset_bytes;
    params.expert_stride_bytes = layer.slot_bytes;
    params.expert_offsets = step.ids(R::expert_offsets);
    params.assignments = step.ids(R::expert_assignments);
    params.tiles = step.ids(R::expert_tiles);
    params.expert_weights = step.floats(R::expert_weights);
    params.workspace = step.buffer<void>(R::expert_mid);
    params.n_experts = step.hyper().n_experts;
    params.n_experts_used = step.hyper().n_experts_used;
    params.accumulate = false;
    c::expert_ffn(params, step.launch);
}

void shared_expert(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    c::ExpertFfnGpuParams params = expert_params(step, weights.shared_down);
    params.gate = weights.shared_gate;
    params.up = weights.shared_up;
    params.down = weights.shared_down;
    params.workspace = step.buffer<void>(R::shared_mid);
    params.n_experts = 1;
    params.n_experts_used = 1;
    params.accumulate = true;
    c::expert_ffn(params, step.launch);
}

void embed(const GpuStep& step) {
    const Bindings& bindings = step.setting.bindings;
    // Where the table is in pinned host memory its rows are read over the link.
    c::embed(
        {bindings.embedding, step.token_ids, step.streams, step.n_tokens, step.hyper().n_streams},
        step.launch);
}

void head_mix(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const HeadBinding& head = *step.head;
    c::hc_head(
        {head.fn, head.base, head.scale, head.norm, step.streams, step.floats(R::head_in),
         step.n_tokens, hyper.n_streams, hyper.hidden_size, hyper.rms_epsilon, hyper.hc_epsilon},
        step.buffer<void>(R::head_in_f16), step.launch);
}

void head(const GpuStep& step) {
    multiply(step, step.setting.bindings.output, kGpuHeadIn, step.setting.bindings.logits,
             c::ElementType::f32);
}

void mtp_input(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const DraftHead& draft = step.setting.bindings.draft_head.front();
    k::MtpInputParams params{};
    params.table = step.setting.bindings.embedding;
    params.e_proj = draft.e_proj;
    params.h_proj = draft.h_proj;
    params.enorm = draft.enorm;
    params.hnorm = draft.hnorm;
    params.ids = step.token_ids;
    params.hidden_streams = step.streams;
    params.streams = step.floats(R::mtp_streams);
    params.workspace = step.floats(R::mtp_norms);
    params.n_tokens = step.n_tokens;
    params.n_streams = hyper.n_streams;
    params.hidden = hyper.hidden_size;
    params.rms_epsilon = hyper.rms_epsilon;
    c::mtp_input(params, step.setting.arithmetic, step.launch);
}

}  // namespace plimsoll::gpu
