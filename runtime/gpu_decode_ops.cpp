#include "runtime/gpu_ops.hpp"

namespace plimsoll::gpu {
namespace {

using R = BufferRole;
namespace k = kernels;
namespace c = kernels::cuda;

/// Merges what the sub-layer before left, unless it is the first, and mixes for the next one.
/// `coefficients` null: the next merge is a step's.
void hc_step(const GpuStep& step, const k::WeightMatrix& fn, const float* base, const float* scale,
             const float* norm, float* mixed, bool merges, float* coefficients) {
    const Hyperparameters& hyper = step.hyper();
    c::HcStepParams params{};
    params.sublayer_out = merges ? step.floats(R::decode_sublayer_out) : nullptr;
    params.partials = step.buffer<std::uint64_t>(R::hc_partials);
    params.mix = {fn,
                  base,
                  scale,
                  norm,
                  step.streams,
                  mixed,
                  coefficients,
                  1,
                  hyper.n_streams,
                  hyper.hidden_size,
                  hyper.sinkhorn_iterations,
                  hyper.rms_epsilon,
                  hyper.hc_epsilon};
    c::hc_step(params, step.launch);
}

c::DecodeProduct product_of(const k::WeightMatrix& weight, const float* input, float* output) {
    c::DecodeProduct product{};
    product.weight = weight;
    product.input = input;
    product.output = output;
    return product;
}

void multiply(const GpuStep& step, std::span<const c::DecodeProduct> products) {
    c::decode_products(products, step.hyper().rms_epsilon, step.launch);
}

c::DecodeIndexerParams indexer_params(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    c::DecodeIndexerParams params{};
    params.queries = step.floats(R::indexer_q);
    params.head_weights = step.floats(R::indexer_weights);
    params.rows = step.layer->cache.index;
    params.rope = step.layer->rope;
    params.rounding = step.setting.rounding;
    params.scores = step.floats(R::indexer_scores);
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.n_heads = hyper.indexer_n_heads;
    params.dim = hyper.indexer_head_dim;
    params.top_k = hyper.indexer_top_k;
    params.ratio = step.layer->ratio;
    return params;
}

/// A compressor's part of decode_rows.
k::CompressorParams compressor_params(const GpuStep& step) {
    k::CompressorParams params{};
    params.rope = step.layer->rope;
    params.n_tokens = 1;
    params.ratio = step.layer->ratio;
    params.rms_epsilon = step.hyper().rms_epsilon;
    params.rounding = step.setting.rounding;
    return params;
}

c::DecodeExpertsParams expert_params(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    const LayerExperts& layer = step.layer->experts;
    c::DecodeExpertsParams params{};
    params.logits = step.floats(R::router_logits);
    params.bias = weights.router_bias;
    params.table = weights.router_table;
    params.gate = layer.gate;
    params.up = layer.up;
    params.down = layer.down;
    params.gate.data = layer.device_slots.data();
    params.up.data = layer.device_slots.data() + layer.up_offset_bytes;
    params.down.data = layer.device_slots.data() + layer.down_offset_bytes;
    params.expert_stride_bytes = layer.slot_bytes;
    params.shared_down = weights.shared_down;
    params.input = step.floats(R::ffn_in);
    params.mid = step.floats(R::expert_mid);
    params.expert_ids = step.ids(R::expert_ids);
    params.expert_weights = step.floats(R::expert_weights);
    params.output = step.floats(R::decode_sublayer_out);
    params.n_experts = hyper.n_experts;
    params.n_experts_used = hyper.n_experts_used;
    params.hidden = hyper.hidden_size;
    params.ff_dim = hyper.expert_ff_dim;
    params.weights_scale = hyper.expert_weights_scale;
    params.clamp = step.layer->swiglu_clamp;
    return params;
}

}  // namespace

void decode_embed(const GpuStep& step) {
    c::embed({step.setting.bindings.embedding, &step.launch.state->token, step.streams, 1,
              step.hyper().n_streams},
             step.launch);
}

void decode_hc_attn(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    hc_step(step, weights.hc_attn_fn, weights.hc_attn_base, weights.hc_attn_scale,
            weights.attn_norm, step.floats(R::attn_in), !step.is_first_layer, nullptr);
}

void decode_attn_products(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    const float* input = step.floats(R::attn_in);
    std::array<c::DecodeProduct, 6> products;
    std::size_t count = 0;
    const auto add = [&](const k::WeightMatrix& weight, R output) {
        if (weight.data == nullptr) return;
        products[count++] = product_of(weight, input, step.floats(output));
    };
    add(weights.q_a, R::q_lora);
    add(weights.kv, R::kv_rows);
    add(weights.compressor_kv, R::compressor_kv);
    add(weights.compressor_gate, R::compressor_gate);
    add(weights.indexer_compressor_kv, R::indexer_kv);
    add(weights.indexer_compressor_gate, R::indexer_gate);
    multiply(step, {products.data(), count});
}

void decode_rows(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    const LayerCache& cache = step.layer->cache;
    c::DecodeRowsParams params{};
    params.kv = step.floats(R::kv_rows);
    params.kv_norm = weights.kv_norm;
    params.ring = cache.window;
    params.rope = step.layer->rope;
    params.rounding = step.setting.rounding;
    params.rms_epsilon = hyper.rms_epsilon;
    if (cache.state != nullptr) {
        params.rows = compressor_params(step);
        params.rows.g_kv = step.floats(R::compressor_kv);
        params.rows.g_sc = step.floats(R::compressor_gate);
        params.rows.ape = weights.compressor_ape;
        params.rows.norm_weight = weights.compressor_norm;
        params.rows.state = cache.state;
        params.rows.kv_rows = cache.rows;
        params.rows.dim = hyper.head_dim;
    }
    if (cache.index_state != nullptr) {
        params.index_rows = compressor_params(step);
        params.index_rows.g_kv = step.floats(R::indexer_kv);
        params.index_rows.g_sc = step.floats(R::indexer_gate);
        params.index_rows.ape = weights.indexer_compressor_ape;
        params.index_rows.norm_weight = weights.indexer_compressor_norm;
        params.index_rows.state = cache.index_state;
        params.index_rows.indexer_rows = cache.index;
        params.index_rows.dim = hyper.indexer_head_dim;
    }
    c::decode_rows(params, step.launch);
}

void decode_q_products(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    std::array<c::DecodeProduct, 3> products;
    std::size_t count = 0;
    products[count] = product_of(weights.q_b, step.floats(R::q_lora), step.floats(R::q));
    products[count++].norm_weight = weights.q_a_norm;
    if (step.layer->ratio == 4) {
        const std::uint32_t rows_min = step.hyper().indexer_top_k;
        products[count] =
            product_of(weights.indexer_q_b, step.floats(R::q_lora), step.floats(R::indexer_q));
        products[count].norm_weight = weights.q_a_norm;
        products[count++].rows_min = rows_min;
        products[count] = product_of(weights.indexer_proj, step.floats(R::attn_in),
                                     step.floats(R::indexer_weights));
        products[count++].rows_min = rows_min;
    }
    multiply(step, {products.data(), count});
}

void decode_indexer_select(const GpuStep& step) {
    c::decode_indexer_select(indexer_params(step), step.launch);
}

void decode_attention(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerBinding& layer = *step.layer;
    c::DecodeAttentionParams params{};
    params.q = step.floats(R::q);
    params.ring = layer.cache.window;
    params.compressed = layer.cache.rows;
    params.selected = step.ids(R::selected);
    params.selected_count = step.ids(R::selected_count);
    params.sinks = layer.weights.sinks;
    params.output = step.floats(R::attn_out);
    params.partials = step.floats(R::attn_partials);
    params.rope = layer.rope;
    params.n_heads = hyper.n_heads;
    params.head_dim = hyper.head_dim;
    params.window = hyper.sliding_window_tokens;
    params.ratio = layer.ratio;
    params.rows_max = hyper.sliding_window_tokens;
    if (layer.ratio == 4) params.rows_max += hyper.indexer_top_k;
    if (layer.ratio > 4) params.rows_max += layer.cache.rows.row_capacity;
    params.rms_epsilon = hyper.rms_epsilon;
    c::decode_attention(params, step.launch);
}

void decode_output_a(const GpuStep& step) {
    c::DecodeProduct product =
        product_of(step.weights().output_a, step.floats(R::attn_out), step.floats(R::attn_low));
    product.n_groups = step.hyper().n_output_groups;
    multiply(step, {&product, 1});
}

void decode_output_b(const GpuStep& step) {
    const c::DecodeProduct product = product_of(step.weights().output_b, step.floats(R::attn_low),
                                                step.floats(R::decode_sublayer_out));
    multiply(step, {&product, 1});
}

void decode_hc_ffn(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    hc_step(step, weights.hc_ffn_fn, weights.hc_ffn_base, weights.hc_ffn_scale, weights.ffn_norm,
            step.floats(R::ffn_in), true,
            step.is_last_layer ? step.floats(R::decode_coefficients) : nullptr);
}

void decode_router_products(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    c::DecodeRouterParams params{};
    params.router = weights.router;
    params.shared_gate = weights.shared_gate;
    params.shared_up = weights.shared_up;
    params.input = step.floats(R::ffn_in);
    params.logits = step.floats(R::router_logits);
    params.shared_mid =
        step.floats(R::expert_mid) + std::uint64_t{hyper.n_experts_used} * hyper.expert_ff_dim;
    params.n_experts = hyper.n_experts;
    params.hidden = hyper.hidden_size;
    params.ff_dim = hyper.expert_ff_dim;
    params.clamp = step.layer->swiglu_clamp;
    c::decode_router(params, step.launch);
}

void decode_experts_up(const GpuStep& step) {
    c::decode_experts_up(expert_params(step), step.launch);
}

void decode_experts_down(const GpuStep& step) {
    c::decode_experts_down(expert_params(step), step.launch);
}

void decode_merge(const GpuStep& step) {
    c::hc_merge({step.floats(R::decode_coefficients), step.floats(R::decode_sublayer_out),
                 step.streams, 1, step.hyper().n_streams, step.hyper().hidden_size},
                step.launch);
}

void decode_head(const GpuStep& step) {
    const Bindings& bindings = step.setting.bindings;
    const c::DecodeProduct product =
        product_of(bindings.output, step.floats(R::head_in), bindings.logits);
    multiply(step, {&product, 1});
}

void decode_choose(const GpuStep& step) {
    std::int32_t* next = step.ids(R::next_token);
    c::argmax({step.setting.bindings.logits, next, 1, step.hyper().vocab_size}, step.launch);
    c::advance_step(next, step.launch);
}

}  // namespace plimsoll::gpu
