#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/ops.hpp"

/// Fused operations of a decode step of one token, in the order of a layer: hc_step, products (q_a,
/// kv, compressors), make_rows, products (q_b, indexer), indexer_select, attention, output_a,
/// output_b, hc_step, router, experts_up, experts_down.
///
/// One launch each. They read launch.state->position and ->token, overlap the launch before where
/// the chip can (weights are fetched before the wait), and are what a token's graph consists of.
/// Each equals a composition of the CPU's operations (tests/device). Activations enter quantised
/// weights' products as 16-bit blocks, made on the way in: the values of quantize_activations.
namespace plimsoll::kernels::cuda {

/// The merge of the sub-layer before (where `sublayer_out` is not null) and the mix and norm for
/// the next one: hc_merge, then hc_mix. The next merge's coefficients stay in `partials` for the
/// step that merges.
struct HcStepParams {
    const float* sublayer_out;  // [hidden], or null: nothing to merge
    std::uint64_t* partials;    // hc_step_partials_bytes(...), zero before the first step, between
                                // steps only theirs
    HcMixParams mix;  // n_tokens 1; streams in place; `coefficients` null but where they are wanted
                      // for anything else than the next step's merge
};
void hc_step(const HcStepParams& params, const Launch& launch);
[[nodiscard]] std::uint64_t hc_step_partials_bytes(std::uint32_t n_streams, std::uint32_t hidden);

/// One product of a launch: y = W . x.
struct DecodeProduct {
    WeightMatrix weight;
    const float* input;  // [n_groups * n_in]
    const float* norm_weight =
        nullptr;                 // [n_in] or null: the input is normed first (one group only)
    float* output = nullptr;     // [n_out]
    std::uint32_t n_groups = 1;  // as in MatmulParams
    /// Skipped where the indexer keeps all rows: (position + 1) / 4 <= rows_min. 0: never skipped.
    std::uint32_t rows_min = 0;
};
inline constexpr std::uint32_t kDecodeProductsMax = 8;
/// Several products in one launch. Each quantised weight meets 16-bit activations, others float32.
void decode_products(std::span<const DecodeProduct> products, float rms_epsilon,
                     const Launch& launch);

/// The token's own row: kv normed, rotated, rounded and stored in the ring; and what `compress`
/// does for the layer's compressors. Null g_kv: that compressor is absent.
struct DecodeRowsParams {
    const float* kv;       // [head_dim] as it leaves the product
    const float* kv_norm;  // [head_dim]
    KvRows ring;
    RopeTable rope;
    CacheRounding rounding;
    float rms_epsilon;
    CompressorParams rows;        // g_kv null where ratio is 0
    CompressorParams index_rows;  // g_kv null where there is no indexer
};
void decode_rows(const DecodeRowsParams& params, const Launch& launch);

/// The best rows of all visible ones; queries are rotated and rounded on the way in. Nothing is
/// scored where all rows are kept. `choose` is the second half alone, of scores as they are.
struct DecodeIndexerParams {
    const float* queries;       // [n_heads, dim] as they leave the product
    const float* head_weights;  // [n_heads]
    IndexerRows rows;
    RopeTable rope;
    CacheRounding rounding;
    float* scores;           // [rows.row_capacity]
    std::int32_t* selected;  // [top_k] out, ascending
    std::int32_t* selected_count;
    std::uint32_t n_heads;
    std::uint32_t dim;
    std::uint32_t top_k;
    std::uint32_t ratio;
};
void decode_indexer_select(const DecodeIndexerParams& params, const Launch& launch);
void decode_indexer_choose(const DecodeIndexerParams& params, const Launch& launch);

/// Attention of one token over ring and compressed rows, its own row already in the ring: rows are
/// split over blocks, the last of which to finish combines. q is normed and rotated on the way in,
/// the output rotated back.
struct DecodeAttentionParams {
    const float* q;  // [n_heads, head_dim] as it leaves the product
    KvRows ring;
    KvRows compressed;             // base null where ratio is 0
    const std::int32_t* selected;  // [rows_max - window], or null: all visible rows
    const std::int32_t* selected_count;
    const float* sinks;
    float* output;    // [n_heads, head_dim]
    float* partials;  // decode_attention_partials_bytes(...)
    RopeTable rope;
    std::uint32_t n_heads;
    std::uint32_t head_dim;
    std::uint32_t window;
    std::uint32_t ratio;
    std::uint32_t rows_max;  // window + the most compressed rows a token may attend to
    float rms_epsilon;
};
void decode_attention(const DecodeAttentionParams& params, const Launch& launch);
[[nodiscard]] std::uint64_t decode_attention_partials_bytes(std::uint32_t n_heads,
                                                            std::uint32_t head_dim,
                                                            std::uint32_t rows_max);

/// The router's logits and, since nothing of it hangs on them, the shared expert's gate and up.
struct DecodeRouterParams {
    WeightMatrix router;
    WeightMatrix shared_gate, shared_up;
    const float* input;  // [hidden]
    float* logits;       // [n_experts]
    float* shared_mid;   // [ff_dim]
    std::uint32_t n_experts;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    float clamp;
};
void decode_router(const DecodeRouterParams& params, const Launch& launch);

/// Routed experts of one token and the shared one. `up`: chooses the experts from the logits (each
/// block for itself), gate and up of them: mid but for its last row, which is the router launch's.
/// `down`: output = sum over experts by ascending slot, the shared one last.
struct DecodeExpertsParams {
    const float* logits;          // [n_experts]
    const float* bias;            // or null
    const std::int32_t* table;    // hash routing, by launch.state->token; or null
    WeightMatrix gate, up, down;  // data is that of expert 0
    std::uint64_t expert_stride_bytes;
    WeightMatrix shared_down;
    const float* input;        // [hidden]
    float* mid;                // [n_experts_used + 1, ff_dim]
    std::int32_t* expert_ids;  // [n_experts_used] out
    float* expert_weights;     // [n_experts_used] out
    float* output;             // [hidden]
    std::uint32_t n_experts;
    std::uint32_t n_experts_used;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    float weights_scale;
    float clamp;
};
void decode_experts_up(const DecodeExpertsParams& params, const Launch& launch);
void decode_experts_down(const DecodeExpertsParams& params, const Launch& launch);

}  // namespace plimsoll::kernels::cuda
