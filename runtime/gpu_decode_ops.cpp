#include "runtime/gpu_ops.hpp"

namespace plimsoll::gpu {
namespace {

using R = BufferRole;
namespace k = kernels;
namespace c = kernels::cuda;

/// A sub-layer's weights of the hyper-connection before it.
struct HcWeights {
    const k::WeightMatrix& fn;
    const float* base;
    const float* scale;
    const float* norm;
};
HcWeights attn_weights(const LayerWeights& layer) {
    return {layer.hc_attn_fn, layer.hc_attn_base, layer.hc_attn_scale, layer.attn_norm};
}
HcWeights ffn_weights(const LayerWeights& layer) {
    return {layer.hc_ffn_fn, layer.hc_ffn_base, layer.hc_ffn_scale, layer.ffn_norm};
}

/// The merge of a sub-layer's output, with the sums for the mix behind it.
c::DecodeMerge merge_before(const GpuStep& step, const HcWeights& next) {
    c::DecodeMerge merge{};
    merge.coefficients = step.floats(R::decode_coefficients);
    merge.streams = step.streams;
    merge.fn = next.fn;
    merge.sums = step.floats(R::hc_sums);
    merge.n_streams = step.hyper().n_streams;
    return merge;
}

c::DecodeMix mix_for(const GpuStep& step, const HcWeights& weights, float* mixed) {
    const Hyperparameters& hyper = step.hyper();
    c::DecodeMix mix{};
    mix.sums = step.floats(R::hc_sums);
    mix.base = weights.base;
    mix.scale = weights.scale;
    mix.norm_weight = weights.norm;
    mix.streams = step.streams;
    mix.mixed = mixed;
    mix.coefficients = step.floats(R::decode_coefficients);
    mix.n_streams = hyper.n_streams;
    mix.hidden = hyper.hidden_size;
    mix.sinkhorn_iterations = hyper.sinkhorn_iterations;
    mix.rms_epsilon = hyper.rms_epsilon;
    mix.hc_epsilon = hyper.hc_epsilon;
    return mix;
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

/// What is the same for both of a layer's compressors.
k::CompressorParams compressor_params(const GpuStep& step) {
    k::CompressorParams params{};
    params.rope = step.layer->rope;
    params.n_tokens = 1;
    params.ratio = step.layer->ratio;
    params.rms_epsilon = step.hyper().rms_epsilon;
    params.rounding = step.setting.rounding;
    return params;
}

/// The rows that the token adds to the layer's cache.
c::DecodeRowsParams rows_params(const GpuStep& step) {
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

void decode_hc_start(const GpuStep& step) {
    c::DecodeMerge sums = merge_before(step, attn_weights(step.setting.bindings.layers[0].weights));
    sums.coefficients = nullptr;
    c::decode_hc_start(sums, step.launch);
}

void decode_attn_products(const GpuStep& step) {
    const LayerWeights& weights = step.weights();
    std::array<c::DecodeProduct, 6> products;
    std::size_t count = 0;
    const auto add = [&](const k::WeightMatrix& weight, R output) {
        if (weight.data == nullptr) return;
        products[count++] = product_of(weight, nullptr, step.floats(output));
    };
    add(weights.q_a, R::q_lora);
    add(weights.kv, R::kv_rows);
    add(weights.compressor_kv, R::compressor_kv);
    add(weights.compressor_gate, R::compressor_gate);
    add(weights.indexer_compressor_kv, R::indexer_kv);
    add(weights.indexer_compressor_gate, R::indexer_gate);
    c::decode_mixed_products({products.data(), count},
                             mix_for(step, attn_weights(weights), step.floats(R::attn_in)),
                             step.launch);
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
    c::decode_products_and_rows({products.data(), count}, step.hyper().rms_epsilon,
                                rows_params(step), step.launch);
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
    c::decode_merged_product(product_of(step.weights().output_b, step.floats(R::attn_low), nullptr),
                             merge_before(step, ffn_weights(step.weights())), step.launch);
}

void decode_router_products(const GpuStep& step) {
    const Hyperparameters& hyper = step.hyper();
    const LayerWeights& weights = step.weights();
    c::DecodeRouterParams params{};
    params.router = weights.router;
    params.shared_gate = weights.shared_gate;
    params.shared_up = weights.shared_up;
    params.mix = mix_for(step, ffn_weights(weights), step.floats(R::ffn_in));
    params.logits = step.floats(R::router_logits);
    params.shared_mid =
        step.floats(R::expert_mid) + std::uint64_t{hyper.n_experts_used} * hyper.expert_ff_dim;
    params.n_experts = hyper.n_experts;
    params.ff_dim = hyper.expert_ff_dim;
    params.clamp = step.layer->swiglu_clamp;
    c::decode_router(params, step.launch);
}

void decode_experts_up(const GpuStep& step) {
    c::decode_experts_up(expert_params(step), step.launch);
}

void decode_experts_down(const GpuStep& step) {
    c::DecodeExpertsParams params = expert_params(step);
    if (step.next_layer != nullptr)
        params.merge = merge_before(step, attn_weights(step.next_layer->weights));
    c::decode_experts_down(params, step.launch);
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
