#include "runtime/gpu_ops.hpp"
#include "runtime/gpu_products.hpp"

namespace plimsoll::gpu {
namespace {

using R = BufferRole;
namespace k = kernels;
namespace c = kernels::cuda;

void norm(const GpuStep& step, float* rows, std::uint64_t n_rows, std::uint32_t dim,
          const float* weight, void* f16) {
    c::rms_norm({rows, weight, rows, n_rows, dim, step.hyper().rms_epsilon}, f16, step.launch);
}

void rotate(const GpuStep& step, float* vectors, std::uint32_t n_heads) {
    k::RopeOpParams params{};
    params.vectors = vectors;
    params.rope = step.layer->rope;
    params.n_tokens = step.n_tokens;
    params.n_heads = n_heads;
    params.head_dim = step.hyper().head_dim;
    c::rope(params, step.launch);
}

/// What both compressors of a layer have in common.
k::CompressorParams compressor_params(const GpuStep& step) {
    k::CompressorParams params{};
    params.rope = step.layer->rope;
    params.n_tokens = step.n_tokens;
    params.ratio = step.layer->ratio;
    params.rms_epsilon = step.hyper().rms_epsilon;
    params.rounding = step.setting.rounding;
    return params;
}

/// True where every token of the call sees no more compressed rows than it may keep: the choice is
/// all of them, and the indexer's queries are not looked at.
bool keeps_all_rows(const GpuStep& step) {
    const std::uint64_t visible = (step.first_position + step.n_tokens) / step.layer->ratio;
    return visible <= step.hyper().indexer_top_k;
}

k::AttentionParams attention_params(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerBinding& layer = *step.layer;
    k::AttentionParams params{};
    params.chunk_rows = step.floats(R::kv_rows);
    params.ring = layer.cache.window;
    params.compressed = layer.cache.rows;
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.sinks = layer.weights.sinks;
    params.n_tokens = step.n_tokens;
    params.n_heads = hyper.n_heads;
    params.head_dim = hyper.head_dim;
    params.window = hyper.sliding_window_tokens;
    params.ratio = layer.ratio;
    params.selected_stride = hyper.indexer_top_k;
    return params;
}

}  // namespace

void hc_attn(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    c::hc_mix({weights.hc_attn_fn, weights.hc_attn_base, weights.hc_attn_scale, weights.attn_norm,
               step.streams, step.floats(R::attn_in), step.floats(R::hc_coefficients),
               step.n_tokens, hyper.n_streams, hyper.hidden_size, hyper.sinkhorn_iterations,
               hyper.rms_epsilon, hyper.hc_epsilon},
              step.buffer<void>(R::attn_in_f16), step.launch);
}

void q_a(const GpuStep& step) {
    float* q_lora = step.floats(R::q_lora);
    multiply(step, step.weights().q_a, kGpuAttnIn, q_lora, c::ElementType::f32);
    norm(step, q_lora, step.n_tokens, step.hyper().q_lora_rank, step.weights().q_a_norm,
         step.buffer<void>(R::q_lora_f16));
}

void kv(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    float* rows = step.floats(R::kv_rows);
    multiply(step, step.weights().kv, kGpuAttnIn, rows, c::ElementType::f32);
    norm(step, rows, step.n_tokens, hyper.head_dim, step.weights().kv_norm, nullptr);
    rotate(step, rows, 1);
    c::round_kv_rows({rows, step.n_tokens, hyper.head_dim, hyper.rope_dim,
                      step.layer->cache.window.format, step.setting.rounding},
                     step.launch);
}

void compressor(const GpuStep& step) {
    multiply_f32(step, step.weights().compressor_kv, R::attn_in, step.floats(R::compressor_kv));
    multiply_f32(step, step.weights().compressor_gate, R::attn_in, step.floats(R::compressor_gate));
}

void compress(const GpuStep& step) {
    k::CompressorParams params = compressor_params(step);
    params.g_kv = step.floats(R::compressor_kv);
    params.g_sc = step.floats(R::compressor_gate);
    params.ape = step.weights().compressor_ape;
    params.norm_weight = step.weights().compressor_norm;
    params.state = step.layer->cache.state;
    params.kv_rows = step.layer->cache.rows;
    params.dim = step.hyper().head_dim;
    c::compress(params, step.launch);
}

void indexer_compressor(const GpuStep& step) {
    multiply_f32(step, step.weights().indexer_compressor_kv, R::attn_in,
                 step.floats(R::indexer_kv));
    multiply_f32(step, step.weights().indexer_compressor_gate, R::attn_in,
                 step.floats(R::indexer_gate));
}

void indexer_compress(const GpuStep& step) {
    k::CompressorParams params = compressor_params(step);
    params.g_kv = step.floats(R::indexer_kv);
    params.g_sc = step.floats(R::indexer_gate);
    params.ape = step.weights().indexer_compressor_ape;
    params.norm_weight = step.weights().indexer_compressor_norm;
    params.state = step.layer->cache.index_state;
    params.indexer_rows = step.layer->cache.index;
    params.dim = step.hyper().indexer_head_dim;
    c::compress(params, step.launch);
}

void indexer_query(const GpuStep& step) {
    if (keeps_all_rows(step)) return;
    const Hyperparameters& hyper = step.hyper();
    float* queries = step.floats(R::indexer_q);
    multiply_f32(step, step.weights().indexer_q_b, R::q_lora, queries);
    multiply_f32(step, step.weights().indexer_proj, R::attn_in, step.floats(R::indexer_weights));
    k::IndexerQueryParams params{};
    params.queries = queries;
    params.rope = step.layer->rope;
    params.n_tokens = step.n_tokens;
    params.n_heads = hyper.indexer_n_heads;
    params.dim = hyper.indexer_head_dim;
    params.rounding = step.setting.rounding;
    c::indexer_query(params, step.launch);
}

void indexer_select(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    k::IndexerSelectParams params{};
    params.queries = step.floats(R::indexer_q);
    params.head_weights = step.floats(R::indexer_weights);
    params.rows = step.layer->cache.index;
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.workspace = step.floats(R::indexer_scores);
    params.n_tokens = step.n_tokens;
    params.n_heads = hyper.indexer_n_heads;
    params.dim = hyper.indexer_head_dim;
    params.top_k = hyper.indexer_top_k;
    params.ratio = step.layer->ratio;
    c::indexer_select(params, step.launch);
}

void q_b(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    if (!step.is_precise()) {
        // Attention norms and rotates the heads where it reads them.
        multiply(step, step.weights().q_b, kGpuQLora, step.buffer<void>(R::q), c::ElementType::f16);
        return;
    }
    float* q = step.floats(R::q);
    multiply(step, step.weights().q_b, kGpuQLora, q, c::ElementType::f32);
    norm(step, q, std::uint64_t{step.n_tokens} * hyper.n_heads, hyper.head_dim, nullptr, nullptr);
    rotate(step, q, hyper.n_heads);
}

void attention(const GpuStep& step) {
    k::AttentionParams params = attention_params(step);
    if (step.is_precise()) {
        params.q = step.floats(R::q);
        params.output = step.floats(R::q);
        params.inverse_rope = step.layer->rope;
        c::attention_precise(params, step.launch);
        return;
    }
    c::attention_fast({.shape = params,
                       .q_f16 = step.buffer<void>(R::q),
                       .output_f16 = step.buffer<void>(R::attn_out_f16),
                       .rope = step.layer->rope,
                       .rms_epsilon = step.hyper().rms_epsilon},
                      step.launch);
}

void append_window(const GpuStep& step) {
    k::StoreKvParams params{};
    params.rows = step.floats(R::kv_rows);
    params.region = step.layer->cache.window;
    params.n_rows = step.n_tokens;
    c::store_kv_rows(params, step.launch);
}

void output_a(const GpuStep& step) {
    const bool is_precise = step.is_precise();
    void* low = is_precise ? step.buffer<void>(R::attn_low) : step.buffer<void>(R::attn_low_f16);
    multiply(step, step.weights().output_a, kGpuAttnOut, low,
             is_precise ? c::ElementType::f32 : c::ElementType::f16, step.hyper().n_output_groups);
}

void output_b(const GpuStep& step) {
    multiply(step, step.weights().output_b, kGpuAttnLow, step.floats(R::sublayer_out),
             c::ElementType::f32);
}

void hc_merge(const GpuStep& step) {
    c::hc_merge({step.floats(R::hc_coefficients), step.floats(R::sublayer_out), step.streams,
                 step.n_tokens, step.hyper().n_streams, step.hyper().hidden_size},
                step.launch);
}

}  // namespace plimsoll::gpu
