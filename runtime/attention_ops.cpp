#include "runtime/forward_ops.hpp"
#include "runtime/products.hpp"

namespace plimsoll {
namespace {

using R = BufferRole;
namespace k = kernels;

/// A compressor of the layer: of its attention rows or of its indexer rows.
struct CompressorParts {
    R g_kv;
    R g_sc;
    const k::WeightMatrix& ape;
    const float* norm;
    void* state;
    std::uint32_t dim;
};

k::CompressorParams compressor_params(const ForwardStep& step, const CompressorParts& parts) {
    k::CompressorParams params{};
    params.g_kv = step.floats(parts.g_kv);
    params.g_sc = step.floats(parts.g_sc);
    params.ape = parts.ape;
    params.norm_weight = parts.norm;
    params.state = parts.state;
    params.rope = step.layer->rope;
    params.first_position = step.first_position;
    params.n_tokens = step.n_tokens;
    params.ratio = step.layer->ratio;
    params.dim = parts.dim;
    params.rms_epsilon = step.hyper().rms_epsilon;
    params.rounding = step.setting.rounding;
    return params;
}

/// In place, each row of `dim` by itself.
void norm(const ForwardStep& step, float* rows, std::uint64_t n_rows, std::uint32_t dim,
          const float* weight) {
    k::cpu::rms_norm({rows, weight, rows, n_rows, dim, step.hyper().rms_epsilon}, step.workers());
}

void rotate(const ForwardStep& step, float* vectors, std::uint32_t n_heads) {
    k::RopeOpParams params{};
    params.vectors = vectors;
    params.rope = step.layer->rope;
    params.first_position = step.first_position;
    params.n_tokens = step.n_tokens;
    params.n_heads = n_heads;
    params.head_dim = step.hyper().head_dim;
    k::cpu::rope(params, step.workers());
}

/// True where every token of the call sees no more compressed rows than it may keep: the choice is
/// all of them, and the indexer's queries are not looked at.
bool keeps_all_rows(const ForwardStep& step) {
    const std::uint64_t visible = (step.first_position + step.n_tokens) / step.layer->ratio;
    return visible <= step.hyper().indexer_top_k;
}

}  // namespace

void hc_attn(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    k::cpu::hc_mix(
        {weights.hc_attn_fn, weights.hc_attn_base, weights.hc_attn_scale, weights.attn_norm,
         step.streams, step.floats(R::attn_in), step.floats(R::hc_coefficients), step.n_tokens,
         hyper.n_streams, hyper.hidden_size, hyper.sinkhorn_iterations, hyper.rms_epsilon,
         hyper.hc_epsilon},
        step.workers());
}

void quantize_attn_in(const ForwardStep& step) {
    quantize_for(step, kAttnIn, step.hyper().hidden_size,
                 {step.weights().q_a.type, step.weights().kv.type});
}

void q_a(const ForwardStep& step) {
    float* q_lora = step.floats(R::q_lora);
    multiply(step, step.weights().q_a, kAttnIn, q_lora);
    norm(step, q_lora, step.n_tokens, step.hyper().q_lora_rank, step.weights().q_a_norm);
}

void kv(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    float* rows = step.floats(R::kv_rows);
    multiply(step, step.weights().kv, kAttnIn, rows);
    norm(step, rows, step.n_tokens, hyper.head_dim, step.weights().kv_norm);
    rotate(step, rows, 1);
    k::cpu::round_kv_rows({rows, step.n_tokens, hyper.head_dim, hyper.rope_dim,
                           step.layer->cache.window.format, step.setting.rounding},
                          step.workers());
}

void compressor(const ForwardStep& step) {
    multiply_f32(step, step.weights().compressor_kv, R::attn_in, step.floats(R::compressor_kv));
    multiply_f32(step, step.weights().compressor_gate, R::attn_in, step.floats(R::compressor_gate));
}

void compress(const ForwardStep& step) {
    k::CompressorParams params = compressor_params(
        step, {R::compressor_kv, R::compressor_gate, step.weights().compressor_ape,
               step.weights().compressor_norm, step.layer->cache.state, step.hyper().head_dim});
    params.kv_rows = step.layer->cache.rows;
    k::cpu::compress(params, step.workers());
}

void indexer_compressor(const ForwardStep& step) {
    multiply_f32(step, step.weights().indexer_compressor_kv, R::attn_in,
                 step.floats(R::indexer_kv));
    multiply_f32(step, step.weights().indexer_compressor_gate, R::attn_in,
                 step.floats(R::indexer_gate));
}

void indexer_compress(const ForwardStep& step) {
    k::CompressorParams params = compressor_params(
        step, {R::indexer_kv, R::indexer_gate, step.weights().indexer_compressor_ape,
               step.weights().indexer_compressor_norm, step.layer->cache.index_state,
               step.hyper().indexer_head_dim});
    params.indexer_rows = step.layer->cache.index;
    k::cpu::compress(params, step.workers());
}

void indexer_query(const ForwardStep& step) {
    if (keeps_all_rows(step)) return;
    const Hyperparameters& hyper = step.hyper();
    float* queries = step.floats(R::indexer_q);
    multiply_f32(step, step.weights().indexer_q_b, R::q_lora, queries);
    multiply_f32(step, step.weights().indexer_proj, R::attn_in, step.floats(R::indexer_weights));
    k::cpu::indexer_query({queries, step.layer->rope, step.first_position, step.n_tokens,
                           hyper.indexer_n_heads, hyper.indexer_head_dim, step.setting.rounding},
                          step.workers());
}

void indexer_select(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    k::IndexerSelectParams params{};
    params.queries = step.floats(R::indexer_q);
    params.head_weights = step.floats(R::indexer_weights);
    params.rows = step.layer->cache.index;
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.workspace = step.floats(R::indexer_scores);
    params.first_position = step.first_position;
    params.n_tokens = step.n_tokens;
    params.n_heads = hyper.indexer_n_heads;
    params.dim = hyper.indexer_head_dim;
    params.top_k = hyper.indexer_top_k;
    params.ratio = step.layer->ratio;
    k::cpu::indexer_select(params, step.workers());
}

void quantize_q_lora(const ForwardStep& step) {
    quantize_for(step, kQLora, step.hyper().q_lora_rank, {step.weights().q_b.type});
}

void q_b(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    float* q = step.floats(R::q);
    multiply(step, step.weights().q_b, kQLora, q);
    norm(step, q, std::uint64_t{step.n_tokens} * hyper.n_heads, hyper.head_dim, nullptr);
    rotate(step, q, hyper.n_heads);
}

void attention(const ForwardStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerBinding& layer = *step.layer;
    k::AttentionParams params{};
    params.q = step.floats(R::q);
    params.chunk_rows = step.floats(R::kv_rows);
    params.ring = layer.cache.window;
    params.compressed = layer.cache.rows;
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.sinks = layer.weights.sinks;
    params.output = step.floats(R::q);
    params.inverse_rope = layer.rope;
    params.first_position = step.first_position;
    params.n_tokens = step.n_tokens;
    params.n_heads = hyper.n_heads;
    params.head_dim = hyper.head_dim;
    params.window = hyper.sliding_window_tokens;
    params.ratio = layer.ratio;
    params.selected_stride = hyper.indexer_top_k;
    k::cpu::attention(params, step.workers());
}

void append_window(const ForwardStep& step) {
    k::cpu::store_kv_rows(
        {step.floats(R::kv_rows), step.layer->cache.window, step.first_position, step.n_tokens},
        step.workers());
}

void quantize_attn_out(const ForwardStep& step) {
    quantize_for(step, kAttnOut, step.hyper().n_heads * step.hyper().head_dim,
                 {step.weights().output_a.type});
}

void output_a(const ForwardStep& step) {
    multiply(step, step.weights().output_a, kAttnOut, step.floats(R::attn_low),
             step.hyper().n_output_groups);
}

void quantize_attn_low(const ForwardStep& step) {
    quantize_for(step, kAttnLow, step.hyper().n_output_groups * step.hyper().output_lora_rank,
                 {step.weights().output_b.type});
}

void output_b(const ForwardStep& step) {
    multiply(step, step.weights().output_b, kAttnLow, step.floats(R::sublayer_out));
}

void hc_attn_merge(const ForwardStep& step) {
    k::cpu::hc_merge({step.floats(R::hc_coefficients), step.floats(R::sublayer_out), step.streams,
                      step.n_tokens, step.hyper().n_streams, step.hyper().hidden_size},
                     step.workers());
}

}  // namespace plimsoll
