#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/ops.hpp"

/// Fused operations of a decode step of one token, in the order of a layer: products of a mix (q_a,
/// kv, compressors), products (q_b, indexer), rows, indexer_select, attention, output_a, output_b
/// with a merge, router of a mix, experts_up, experts_down with a merge. Hyper-connections have no
/// launch of their own: whoever makes a sub-layer's output merges it, whoever reads mixes.
///
/// One launch each. They read launch.state->position and ->token, overlap the launch before where
/// the chip can (weights are fetched before the wait), and are what a token's graph consists of.
/// Each equals a composition of the CPU's operations (tests/device). Activations enter quantised
/// weights' products as 16-bit blocks, made on the way in: the values of quantize_activations.
namespace plimsoll::kernels::cuda {

/// What the launch that makes a sub-layer's output does with it: hc_merge, and over the streams
/// that result the sums that the next mix needs: every block those of its columns.
struct DecodeMerge {
    const float* coefficients = nullptr;  // of the mix before (DecodeMix)
    float* streams = nullptr;             // [n_streams, hidden] in place; null: no merge
    WeightMatrix fn;        // of the next mix: [n_streams * (n_streams + 2), n_streams * hidden]
    float* sums = nullptr;  // decode_hc_sums_bytes(n_streams) out
    std::uint32_t n_streams = 0;
};
/// A token's first sums, of streams as they are; `coefficients` is null.
void decode_hc_start(const DecodeMerge& params, const Launch& launch);
[[nodiscard]] std::uint64_t decode_hc_sums_bytes(std::uint32_t n_streams);

/// What a launch's products read in place of a row in memory: hc_mix of the streams, by every block
/// for itself, from the sums that a DecodeMerge has left on the same device.
struct DecodeMix {
    const float* sums;
    const float* base;         // as in HcMixParams
    const float* scale;        // [3]
    const float* norm_weight;  // [hidden]
    const float* streams;      // [n_streams, hidden]
    float* mixed;              // [hidden] out, for later launches
    float* coefficients;       // [n_streams + n_streams^2] out, for the next merge
    std::uint32_t n_streams;
    std::uint32_t hidden;
    std::uint32_t sinkhorn_iterations;
    float rms_epsilon;
    float hc_epsilon;
};

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
/// The same of a mix: `input`, `norm_weight` and `rows_min` of the products are not read, and each
/// has one group.
void decode_mixed_products(std::span<const DecodeProduct> products, const DecodeMix& mix,
                           const Launch& launch);
/// One product of one group, merged into the streams: `output` is not written.
void decode_merged_product(const DecodeProduct& product, const DecodeMerge& merge,
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
/// The rows, and products beside them that read none: possibly none at all.
void decode_products_and_rows(std::span<const DecodeProduct> products, float rms_epsilon,
                              const DecodeRowsParams& rows, const Launch& launch);

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

/// The router's logits and, since nothing of it hangs on them, the shared expert's gate and up: of
/// a mix.
struct DecodeRouterParams {
    WeightMatrix router;
    WeightMatrix shared_gate, shared_up;
    DecodeMix mix;
    float* logits;      // [n_experts]
    float* shared_mid;  // [ff_dim]
    std::uint32_t n_experts;
    std::uint32_t ff_dim;
    float clamp;
};
void decode_router(const DecodeRouterParams& params, const Launch& launch);

/// Routed experts of one token and the shared one. `up`: chooses the experts from the logits (each
/// block for itself), gate and up of them: mid but for its last row, which is the router launch's.
/// `down`: output = sum over experts by ascending slot, the shared one last; merged into the
/// streams where `merge` has any.
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
    float* output;             // [hidden], not written where it is merged
    DecodeMerge merge;         // of `down`
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
