#include "runtime/forward_ops.hpp"
#include "runtime/products.hpp"

namespace plimsoll {
namespace {

using R = BufferRole;
namespace k = kernels;

/// What routed and shared experts have in common; input, runs and scratch are the caller's.
k::ExpertFfnParams expert_params(const ForwardStep& step) {
    k::ExpertFfnParams params{};
    params.output = step.floats(R::sublayer_out);
    params.n_tokens = step.n_tokens;
    params.hidden = step.hyper().hidden_size;
    params.ff_dim = step.hyper().expert_ff_dim;
    params.clamp = step.layer->swiglu_clamp;
    params.mode = step.setting.mode;
    return params;
}

}  // namespace

void hc_ffn(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    k::cpu::hc_mix({weights.hc_ffn_fn, weights.hc_ffn_base, weights.hc_ffn_scale, weights.ffn_norm,
                    step.streams, step.floats(R::ffn_in), step.floats(R::hc_coefficients),
                    step.n_tokens, hyper.n_streams, hyper.hidden_size, hyper.sinkhorn_iterations,
                    hyper.rms_epsilon, hyper.hc_epsilon},
                   step.workers());
}

void router(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    multiply_f32(step, weights.router, R::ffn_in, step.floats(R::router_logits));
    k::cpu::route(
        {step.floats(R::router_logits), weights.router_bias, weights.router_table, step.token_ids,
         step.ids(R::expert_ids), step.floats(R::expert_weights), step.n_tokens, hyper.n_experts,
         hyper.n_experts_used, hyper.expert_weights_scale},
        step.workers());
    k::cpu::group_by_expert({step.ids(R::expert_ids), step.ids(R::expert_offsets),
                             step.ids(R::expert_assignments), step.n_tokens, hyper.n_experts,
                             hyper.n_experts_used});
}

void quantize_ffn_in(const ForwardStep& step) {
    quantize_for(step, kFfnIn, step.hyper().hidden_size,
                 {step.layer->experts.gate.type, step.weights().shared_gate.type,
                  step.weights().shared_up.type});
}

void experts(const ForwardStep& step) {
    const LayerExperts& layer = step.layer->experts;
    k::ExpertFfnParams params = expert_params(step);
    params.assignments = step.ids(R::expert_assignments);
    params.expert_weights = step.floats(R::expert_weights);
    params.input = input_rows(step, kFfnIn, layer.gate.type);
    params.workspace = step.buffer<std::byte>(R::expert_mid);
    params.n_experts_used = step.hyper().n_experts_used;
    params.accumulate = false;
    for (std::uint32_t expert = 0; expert < step.hyper().n_experts;) {
        params.runs = step.setting.experts.next_wave(layer, step.ids(R::expert_offsets),
                                                     step.workers(), expert);
        k::cpu::expert_ffn(params, step.workers());
        params.accumulate = true;
    }
}

void shared_expert(const ForwardStep& step) {
    const LayerWeights& weights = step.weights();
    const k::ExpertRun run{weights.shared_gate, weights.shared_up, weights.shared_down, 0,
                           step.n_tokens};
    k::ExpertFfnParams params = expert_params(step);
    params.runs = {&run, 1};
    params.input = input_rows(step, kFfnIn, weights.shared_gate.type);
    params.workspace = step.buffer<std::byte>(R::shared_mid);
    params.n_experts_used = 1;
    k::cpu::expert_ffn(params, step.workers());
}

void hc_ffn_merge(const ForwardStep& step) { hc_attn_merge(step); }

}  // namespace plimsoll
