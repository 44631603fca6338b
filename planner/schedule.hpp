#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/model.hpp"
#include "planner/pack.hpp"

namespace plimsoll {

/// What an op does. One row of the runtime's op table each; the order of a step is the schedule's
/// alone.
enum class OpKind : std::uint8_t {
    embed,               // token_ids -> streams
    hc_attn,             // streams -> attn_in (mixed and normed), hc_coefficients
    quantize_attn_in,    // attn_in -> attn_in_q16, attn_in_q16k; fast mode only, as the other
                         // quantize ops
    q_a,                 // attn_in -> q_lora, normed
    kv,                  // attn_in -> kv_rows, normed, rotated, rounded
    compressor,          // attn_in -> compressor_kv, compressor_gate
    compress,            // those and the rolling state -> compressed rows in the cache
    indexer_compressor,  // attn_in -> indexer_kv, indexer_gate
    indexer_compress,    // those -> indexer rows in the cache
    indexer_query,       // q_lora, attn_in -> indexer_q, indexer_weights
    indexer_select,      // those and the indexer rows -> selected rows
    quantize_q_lora,
    q_b,            // q_lora -> q, normed per head, rotated
    attention,      // q, kv_rows, cache -> q holds the heads' outputs, rotated back
    append_window,  // kv_rows -> window ring
    quantize_attn_out,
    output_a,  // q -> attn_low
    quantize_attn_low,
    output_b,       // attn_low -> sublayer_out
    hc_attn_merge,  // sublayer_out, hc_coefficients, streams -> streams
    hc_ffn,         // streams -> ffn_in, hc_coefficients
    router,         // ffn_in -> expert_ids, expert_weights, grouped
    quantize_ffn_in,
    experts,        // ffn_in, routing -> sublayer_out
    shared_expert,  // ffn_in -> added to sublayer_out
    hc_ffn_merge,
    head_mix,  // streams -> head_in
    quantize_head_in,
    head,       // head_in -> logits (a region of its own); streams stay for the rows not yet done
    mtp_input,  // streams, token_ids -> mtp_streams
    // A decode step of one token on a GPU: a launch each, whose work the ops above describe.
    decode_embed,           // token of step_state -> streams
    decode_hc_start,        // the sums over the first streams that the first layer's hc_attn needs
    decode_attn_products,   // hc_attn; q_a, kv, compressor, indexer_compressor; norms are left to
                            // readers
    decode_q_products,      // q_b, indexer_query, norms and rotations left to readers; kv norm,
                            // rope, rounding, append_window; compress, indexer_compress
    decode_indexer_select,  // indexer_q, indexer rows -> selected rows
    decode_attention,       // q, cache -> attn_out
    decode_output_a,
    decode_output_b,         // output_b, hc_attn_merge, the sums that hc_ffn needs
    decode_router_products,  // hc_ffn; ffn_in -> router_logits; gate and up of the shared expert
    decode_experts_up,       // the router's choice; gate and up of its experts
    decode_experts_down,     // hc_ffn_merge, the sums for the next layer's hc_attn; of the last
                             // layer neither
    decode_merge,            // the last layer's hc_ffn_merge
    decode_head,             // head_in -> logits
    decode_choose,           // logits -> next token, step_state
    count,
};

/// Kinds before the decode steps': the ops of chunks, which every backend has.
inline constexpr std::size_t kChunkOpKindCount = static_cast<std::size_t>(OpKind::decode_embed);

/// What a workspace buffer holds. Shapes are per token unless said otherwise; T is the tokens of a
/// call.
enum class BufferRole : std::uint8_t {
    token_ids,        // [T] int32, the whole step
    streams,          // [T (+ 1 with a draft head), n_streams, hidden] f32, the residual; float32
                      // throughout
    attn_in,          // [T, hidden] f32
    attn_in_q16,      // [T] activation rows in 16-bit blocks of 32
    attn_in_q16k,     // [T] activation rows in 16-bit blocks of 256
    hc_coefficients,  // [T, n_streams + n_streams^2] f32
    q_lora,           // [T, q_lora_rank] f32
    q_lora_q16,
    q_lora_q16k,
    kv_rows,          // [T, head_dim] f32: the chunk's own rows
    compressor_kv,    // [T, lanes * head_dim] f32
    compressor_gate,  // the same
    indexer_kv,       // [T, 2 * indexer_head_dim] f32
    indexer_gate,
    indexer_q,        // [T, indexer_n_heads, indexer_head_dim] f32
    indexer_weights,  // [T, indexer_n_heads] f32
    indexer_scores,   // a tile of scores and the running top-k; not per token beyond 64 tokens
    selected,         // [T, top_k] int32
    selected_count,   // [T] int32
    q,                // [T, n_heads, head_dim] f32; attention's output replaces it
    attn_out_q16,
    attn_out_q16k,
    attn_low,  // [T, n_output_groups * output_lora_rank] f32
    attn_low_q16,
    attn_low_q16k,
    sublayer_out,  // [T, hidden] f32
    ffn_in,        // [T, hidden] f32
    ffn_in_q16,
    ffn_in_q16k,
    router_logits,       // [T, n_experts] f32
    expert_ids,          // [T, n_experts_used] int32
    expert_weights,      // [T, n_experts_used] f32
    expert_offsets,      // [n_experts + 1] int32, per call
    expert_assignments,  // [T * n_experts_used] int32
    expert_mid,          // [T * n_experts_used] inner rows, f32 and quantised
    shared_mid,          // [T] inner rows
    head_in,             // [logits rows, hidden] f32
    head_in_q16,
    head_in_q16k,
    mtp_streams,  // [T, n_streams, hidden] f32
    mtp_norms,    // [T, 2 + n_streams, hidden] f32: normed inputs of the draft head, and the
                  // embedding's product
    // On a GPU alone.
    step_state,   // kernels::cuda::StepState, the whole step
    attn_in_f16,  // rows of the fast mode in float16
    q_lora_f16,
    attn_out_f16,
    attn_low_f16,
    ffn_in_f16,
    head_in_f16,
    expert_tiles,         // [1 + 2 * tiles] int32: which expert and assignments a tile has
    attn_out,             // [n_heads, head_dim] f32
    attn_partials,        // softmax and sums of each split of the rows
    hc_sums,              // of each slice of the streams, from a merge to the mix behind it
    decode_coefficients,  // as hc_coefficients, from a mix to the merge behind it
    decode_sublayer_out,  // [hidden] f32, the last layer's
    next_token,           // int32
    count,
};
[[nodiscard]] std::string_view buffer_role_name(BufferRole role);
[[nodiscard]] std::string_view op_kind_name(OpKind kind);

struct Op {
    OpKind kind = OpKind::embed;
    std::vector<BufferRole> reads;
    std::vector<BufferRole> writes;  // a buffer in both is updated in place

    bool operator==(const Op&) const = default;
};

/// Stretches of the schedule. A layer's stretch serves every layer of its kind.
enum class PhaseKind : std::uint8_t {
    embed,
    window_layer,  // ratio 0
    csa_layer,     // ratio 4: compressed rows chosen by the indexer
    hca_layer,     // ratio 128: all compressed rows
    head,
    mtp_input,
    mtp_layer,  // a window layer of the draft head
    mtp_head,
    decode_embed,
    decode_window_layer,
    decode_csa_layer,
    decode_hca_layer,
    decode_head,
    count,
};
inline constexpr std::size_t kPhaseKindCount = static_cast<std::size_t>(PhaseKind::count);
inline constexpr std::size_t kBufferRoleCount = static_cast<std::size_t>(BufferRole::count);
[[nodiscard]] std::string_view phase_kind_name(PhaseKind kind);

struct Phase {
    bool present = false;
    std::uint32_t first_op = 0;
    std::uint32_t last_op = 0;  // half-open
    std::array<std::int32_t, kBufferRoleCount>
        buffer{};  // index into Schedule::buffers, -1: not used

    bool operator==(const Phase&) const = default;
};

/// One forward step: the ops in order and the workspace buffers with their exact sizes and
/// lifetimes. The planner packs `buffers`; the runtime executes `ops`. Nothing else knows the
/// order.
struct Schedule {
    std::vector<Op> ops;
    std::vector<Buffer> buffers;
    std::array<Phase, kPhaseKindCount> phases;

    [[nodiscard]] const Phase& phase(PhaseKind kind) const {
        return phases[static_cast<std::size_t>(kind)];
    }
    bool operator==(const Schedule&) const = default;
};

/// What the schedule depends on besides the model.
struct ScheduleShape {
    bool is_gpu = false;  // float16 rows, and decode steps of their own
    std::uint64_t context_tokens = 1;
    std::uint64_t tokens = 1;           // T: the most tokens of one call
    std::uint64_t logits_rows = 1;      // 1 + drafts
    bool quantized_activations = true;  // the fast mode
    bool first_device = true;           // embeds
    bool last_device = true;            // has the head, and the draft head
    std::uint32_t layer_first = 0;      // the device's layers [layer_first, layer_last)
    std::uint32_t layer_last = 0;
};

[[nodiscard]] constexpr PhaseKind layer_phase(std::uint32_t compress_ratio) {
    return compress_ratio == 0   ? PhaseKind::window_layer
           : compress_ratio == 4 ? PhaseKind::csa_layer
                                 : PhaseKind::hca_layer;
}

[[nodiscard]] constexpr PhaseKind decode_layer_phase(std::uint32_t compress_ratio) {
    return compress_ratio == 0   ? PhaseKind::decode_window_layer
           : compress_ratio == 4 ? PhaseKind::decode_csa_layer
                                 : PhaseKind::decode_hca_layer;
}

/// The schedule of one device. `mtp` may be null.
[[nodiscard]] Schedule build_schedule(const Model& model, const Model* mtp,
                                      const ScheduleShape& shape);

/// Bytes of one activation row of `n` elements as the fast mode feeds it to a weight of this type:
/// 16-bit blocks of 32 with a float32 scale (Q8_0 weights) or of 256 with a float32 scale and sums
/// (K-quants); 0 for weights that take float32.
[[nodiscard]] std::uint64_t quantized_row_bytes(TensorType weight, std::uint64_t n);

/// Scratch of the routed or shared experts for `n_assignments` (token, expert) pairs: an inner row
/// each in float32, and quantised for a down weight of `down` in the fast mode.
[[nodiscard]] std::uint64_t expert_mid_bytes(std::uint64_t n_assignments, std::uint64_t ff_dim,
                                             TensorType down, bool quantized_activations);

/// Scratch of the indexer's tiled scores with a running top-k.
[[nodiscard]] std::uint64_t indexer_scores_bytes(std::uint64_t tokens, std::uint64_t top_k);

/// Scratch of the GPU's operations; the functions of the same meaning in kernels/cuda say the same
/// (tests/device).
namespace gpu {

/// kernels::cuda::StepState.
inline constexpr std::uint64_t kStepStateBytes = 16 + 4 * 64 * 4;

/// An inner row an assignment (float16, or float32 where precise), and an output row in float32 but
/// for the shared expert.
[[nodiscard]] std::uint64_t expert_mid_bytes(std::uint64_t n_assignments, std::uint64_t hidden,
                                             std::uint64_t ff_dim, bool is_shared, bool precise);
/// Tiles of up to 64 assignments of one expert.
[[nodiscard]] std::uint64_t expert_tiles_bytes(std::uint64_t n_assignments,
                                               std::uint64_t n_experts);
/// Scores over all rows, of as many tokens at a time as fit 32 MiB.
[[nodiscard]] std::uint64_t indexer_scores_bytes(std::uint64_t tokens, std::uint64_t rows);
[[nodiscard]] std::uint64_t attn_partials_bytes(std::uint64_t n_heads, std::uint64_t head_dim,
                                                std::uint64_t rows_max);
[[nodiscard]] std::uint64_t hc_sums_bytes(std::uint64_t n_streams);

}  // namespace gpu

}  // namespace plimsoll
