#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_rows.hpp"
#include "kernels/rope.hpp"
#include "kernels/types.hpp"
#include "kernels/workers.hpp"

/// Every operation of a DeepSeek-V4 forward step: one parameter struct each, and the CPU functions.
///
/// Common to all of them:
/// - Matrices are row-major and dense unless a stride is named; T is `n_tokens`; any T >= 0 is
/// allowed.
/// - The result for a token depends on that token's data alone: not on T, the threads or the memory
/// its
///   weights are in. So a prompt gives the same bits in one chunk, in several, or token by token.
/// - Nothing allocates, throws or keeps a pointer. Where scratch is needed the struct has
/// `workspace`, whose
///   size `..._workspace_bytes` gives; it is aligned to 64 bytes and needs no initialisation.
/// - Output must not overlap input except where the comment says in place.
/// - A shape that cannot be is a bug of the caller and stops the program with a message.
///
/// The formulas are those of the DeepSeek-V4 reference implementation.
namespace plimsoll::kernels {

/// X[t][s] = table[ids[t]] for all streams s.
struct EmbedParams {
    WeightMatrix table;  // [vocab, hidden]; F16, BF16, F32 or Q8_0; n_in = hidden, n_out = vocab
    const std::int32_t* ids;  // [T] in [0, vocab)
    float* streams;           // [T, n_streams, hidden] out
    std::uint32_t n_tokens;
    std::uint32_t n_streams;
};

/// Hyper-connection before a sub-layer: coefficients, mixed input, and the sub-layer's RMS norm.
/// Sums of squares are accumulated in double.
struct HcMixParams {
    WeightMatrix fn;           // [n_streams * (n_streams + 2), n_streams * hidden]
    const float* base;         // [n_streams * (n_streams + 2)] order pre, post, comb
    const float* scale;        // [3] for pre, post, comb
    const float* norm_weight;  // [hidden] attn_norm or ffn_norm
    const float* streams;      // [T, n_streams, hidden]
    float* mixed;              // [T, hidden] out: rms(sum_s pre[s] X[s]) * norm_weight
    float* coefficients;       // [T, n_streams + n_streams^2] out: post, then comb row-major
    std::uint32_t n_tokens;
    std::uint32_t n_streams;
    std::uint32_t hidden;  // >= n_streams * (n_streams + 2)
    std::uint32_t sinkhorn_iterations;
    float rms_epsilon;
    float hc_epsilon;
};

/// Hyper-connection after a sub-layer: X[k] = post[k] * y + sum_j comb[j][k] * X[j], in place.
struct HcMergeParams {
    const float* coefficients;  // [T, n_streams + n_streams^2] from hc_mix
    const float* sublayer_out;  // [T, hidden] y
    float* streams;             // [T, n_streams, hidden] in place
    std::uint32_t n_tokens;
    std::uint32_t n_streams;
    std::uint32_t hidden;
};

/// Quantises rows of activations once for all the products that read them.
struct QuantizeParams {
    const float* input;  // [T, n]
    void* output;        // [T] rows of activation_row_bytes(format, n)
    std::uint32_t n_tokens;
    std::uint32_t n;          // a multiple of the format's block
    ActivationFormat format;  // q16 or q16k
};

/// y[t][o] (+)= W[o] . x[t] for output rows o in [row_first, row_last).
/// With n_groups > 1 the input row is n_groups slices of weight.n_in elements, and output row o
/// reads slice o / (weight.n_out / n_groups) (attn_output_a).
struct MatmulParams {
    WeightMatrix weight;
    const void* input;            // [T, n_groups * weight.n_in] in input_format
    float* output;                // [T, output_stride]; y[t][o] is at t * output_stride + o
    std::uint64_t output_stride;  // in floats; 0 means weight.n_out
    std::uint32_t n_tokens;
    std::uint32_t row_first = 0;
    std::uint32_t row_last = 0;  // 0 means weight.n_out
    std::uint32_t n_groups = 1;
    ActivationFormat input_format = ActivationFormat::f32;  // f32, or the weight type's fast format
    bool accumulate = false;
};

/// y = x / sqrt(mean(x^2) + epsilon) * weight by row of `dim`; sums in double. In place is allowed.
struct RmsNormParams {
    const float* input;    // [n_rows, dim]
    const float* weight;   // [dim], or null for the unweighted form
    float* output;         // [n_rows, dim]; may be `input`
    std::uint64_t n_rows;  // tokens, or tokens * heads for a norm per head
    std::uint32_t dim;
    float epsilon;
};

/// Rotates the trailing rope_dim dims of each head, interleaved pairs, in place. Token t is at
/// position first_position + t. Angles are formed in double, so that q and k agree at any position.
struct RopeOpParams {
    float* vectors;  // [T, n_heads, head_dim] in place
    RopeTable rope;
    std::uint64_t first_position;
    std::uint32_t n_tokens;
    std::uint32_t n_heads;
    std::uint32_t head_dim;
    bool inverse = false;
};

/// Brings freshly made KV rows to the values that a region of `format` will give back: FP8 rounding
/// of the leading dims where rounding is on; with `packed` also F16 rounding of the rope tail. In
/// place.
struct RoundKvParams {
    float* rows;  // [n_rows, head_dim] in place
    std::uint32_t n_rows;
    std::uint32_t head_dim;
    std::uint32_t rope_dim;
    KvFormat format;
    CacheRounding rounding;
};

/// Hadamard transform and FP4 rounding of indexer vectors, in place; nothing with rounding off.
struct RoundIndexerParams {
    float* rows;  // [n_rows, dim] in place; dim a power of two, a multiple of 32
    std::uint64_t n_rows;
    std::uint32_t dim;
    CacheRounding rounding;
};

/// Writes rows into a region at slot (first_position + i) mod row_capacity. Where n_rows exceeds
/// the capacity only the last row_capacity rows are written. Rows already rounded come back bit for
/// bit.
struct StoreKvParams {
    const float* rows;  // [n_rows, head_dim]
    KvRows region;
    std::uint64_t first_position;  // or row index, for compressed rows
    std::uint32_t n_rows;
};
struct StoreIndexerParams {
    const float* rows;  // [n_rows, dim]
    IndexerRows region;
    std::uint64_t first_row;
    std::uint32_t n_rows;
};

/// Reads rows of a region back as float32, slots as in the store ops. For tests and saving.
struct LoadKvParams {
    KvRows region;
    float* rows;  // [n_rows, head_dim] out
    std::uint64_t first_position;
    std::uint32_t n_rows;
};
struct LoadIndexerParams {
    IndexerRows region;
    float* rows;  // [n_rows, dim] out
    std::uint64_t first_row;
    std::uint32_t n_rows;
};

/// Rolling state of a compressor: state_kv then state_score, each [state_rows, width] f32, where
/// ratio 4 has two lanes (width = 2 * dim, 8 rows: 0-3 the previous window, 4-7 the current one)
/// and any other ratio has one (width = dim, `ratio` rows). A token at position p sits in row p mod
/// ratio (+ 4 for ratio 4).
[[nodiscard]] constexpr std::uint32_t compressor_lanes(std::uint32_t ratio) {
    return ratio == 4 ? 2 : 1;
}
[[nodiscard]] constexpr std::uint32_t compressor_state_rows(std::uint32_t ratio) {
    return ratio == 4 ? 8 : ratio;
}
/// Bytes of the state; `width` is compressor_lanes(ratio) * dim, the columns of compressor_kv.
[[nodiscard]] constexpr std::uint64_t compressor_state_bytes(std::uint32_t ratio,
                                                             std::uint64_t width) {
    return 2 * std::uint64_t{compressor_state_rows(ratio)} * width * sizeof(float);
}

/// Pools this chunk's g_kv and g_sc with the rolling state, finishes each completed window's row
/// (norm, rope at the window's first position, rounding), stores it in the region at its row index,
/// and updates the state. Exactly one of kv_rows.base and indexer_rows.base is set, and says what
/// kind of row is made. After the call rows [0, (first_position + T) / ratio) of the region are
/// valid.
struct CompressorParams {
    const float* g_kv;         // [T, width] input . compressor_kv
    const float* g_sc;         // [T, width] input . compressor_gate, without ape
    WeightMatrix ape;          // [ratio, width]: n_in = width, n_out = ratio; F32, F16 or BF16
    const float* norm_weight;  // [dim]
    void* state;     // compressor_state_bytes(ratio, width), in place; see compressor_reset
    KvRows kv_rows;  // dim = head_dim
    IndexerRows indexer_rows;      // dim = indexer dim
    RopeTable rope;                // the layer's
    std::uint64_t first_position;  // of token 0; any
    std::uint32_t n_tokens;
    std::uint32_t ratio;  // 4 or 128
    std::uint32_t dim;
    float rms_epsilon;
    CacheRounding rounding;
};

/// Indexer queries: rope of each head, then Hadamard and FP4 rounding, in place.
struct IndexerQueryParams {
    float* queries;  // [T, n_heads, dim] in place
    RopeTable rope;
    std::uint64_t first_position;
    std::uint32_t n_tokens;
    std::uint32_t n_heads;
    std::uint32_t dim;
    CacheRounding rounding;
};

/// Rows a token attends to: score[n] = sum_h w[h] / sqrt(dim * n_heads) * max(0, q[h] . k[n]) over
/// the visible rows n < (p + 1) / ratio, the top_k largest, ties to the lower row. Tiled: scores of
/// all rows never exist.
struct IndexerSelectParams {
    const float* queries;       // [T, n_heads, dim] from indexer_query
    const float* head_weights;  // [T, n_heads] input . indexer.proj, unscaled
    IndexerRows rows;
    std::int32_t* selected;  // [T, top_k] out, ascending; entries past the count are unspecified
    std::int32_t* selected_count;  // [T] out, min(top_k, visible)
    void* workspace;               // indexer_select_workspace_bytes(T, top_k)
    std::uint64_t first_position;
    std::uint32_t n_tokens;
    std::uint32_t n_heads;
    std::uint32_t dim;
    std::uint32_t top_k;
    std::uint32_t ratio;
};
/// At most 64 tokens are scored at a time, so this stops growing at T = 64.
[[nodiscard]] std::uint64_t indexer_select_workspace_bytes(std::uint32_t n_tokens,
                                                           std::uint32_t top_k);

/// Attention of a chunk over window rows (ring, then chunk), then compressed rows, in that order
/// and each ascending; one softmax with a sink logit per head; K and V are the same vector; logits
/// scaled by 1/sqrt(head_dim). Then the output is rotated back.
///
/// Token t is at p = first_position + t and sees positions max(0, p - window + 1) .. p: those
/// before first_position from `ring` (slot = position mod row_capacity), the others from
/// `chunk_rows`; and the compressed rows n < (p + 1) / ratio, or of these the selected ones.
struct AttentionParams {
    const float* q;                // [T, n_heads, head_dim], normed and rotated
    const float* chunk_rows;       // [T, head_dim], rounded by round_kv_rows
    KvRows ring;                   // row_capacity >= window - 1; not written here
    KvRows compressed;             // base null where ratio is 0
    const std::int32_t* selected;  // [T, selected_stride] ascending, or null: all visible rows
    const std::int32_t* selected_count;  // [T], or null with selected
    const float* sinks;                  // [n_heads]
    float* output;                       // [T, n_heads, head_dim]; may be `q`
    RopeTable inverse_rope;              // frequencies null: the output is not rotated
    std::uint64_t first_position;
    std::uint32_t n_tokens;
    std::uint32_t n_heads;
    std::uint32_t head_dim;
    std::uint32_t window;               // tokens, the own one included
    std::uint32_t ratio;                // 0 without compressed rows
    std::uint32_t selected_stride = 0;  // top_k of indexer_select
};

/// Experts and weights of each token: t_e = sqrt(softplus(logit_e)); the k largest of t_e + bias_e
/// (ties to the lower id), or a table's row; weights scale * t_e / max(sum of the chosen t, 2^-14).
struct RouterParams {
    const float* logits;            // [T, n_experts]
    const float* bias;              // [n_experts], or null
    const std::int32_t* table;      // [vocab, k] hash routing, or null; used instead of the top-k
    const std::int32_t* token_ids;  // [T], only read with `table`
    std::int32_t* expert_ids;       // [T, k] out; by descending score, or as in the table
    float* expert_weights;          // [T, k] out
    std::uint32_t n_tokens;
    std::uint32_t n_experts;
    std::uint32_t n_experts_used;  // k
    float weights_scale;
};

/// Counting sort of assignments by expert. Assignment a = t * k + slot. Serial: the lists are
/// short.
struct GroupByExpertParams {
    const std::int32_t* expert_ids;  // [T, k]
    std::int32_t*
        expert_offsets;  // [n_experts + 1] out: expert e has assignments [offsets[e], offsets[e+1])
    std::int32_t* assignments;  // [T * k] out: assignment indices a, token order within an expert
    std::uint32_t n_tokens;
    std::uint32_t n_experts;
    std::uint32_t n_experts_used;
};

/// One expert's weights and its share of the assignment list.
struct ExpertRun {
    WeightMatrix gate;  // [ff_dim, hidden]
    WeightMatrix up;    // [ff_dim, hidden], same type as gate
    WeightMatrix down;  // [hidden, ff_dim]
    std::uint32_t assignment_first = 0;
    std::uint32_t assignment_last = 0;
};

/// For each run and each of its assignments (token t, weight w):
///     mid = silu(min(x_t . gate, clamp)) * clamp(x_t . up, -clamp, clamp) * w;   y_t += mid . down
///
/// Contributions are added to a token's output in the order of the runs, so runs go by ascending
/// expert id; a call with many runs gives the same bits as one call a run. Decode passes the k
/// experts of a token in one call (two or three parallel regions in all); prefill may do the same
/// or go expert by expert. The shared expert is a run with null `assignments`: then assignment a is
/// token a with weight 1.
struct ExpertFfnParams {
    std::span<const ExpertRun> runs;
    const std::int32_t* assignments;  // from group_by_expert, indexed by the runs' ranges; or null
    const float* expert_weights;      // [T, k], indexed by assignment; null with `assignments`
    const void* input;                // [T, hidden] in activation_format(gate.type, mode)
    float* output;                    // [T, hidden] added to, or set (see `accumulate`)
    void* workspace;  // expert_ffn_workspace_bytes(sum of the runs' assignments, ff_dim)
    std::uint32_t n_experts_used;  // k: token of assignment a is a / k; 1 with null assignments
    std::uint32_t n_tokens;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    float clamp;
    ActivationMode mode;
    bool accumulate = true;  // false: output rows of all T tokens start from zero
};
/// Workspace for `n_assignments` assignments in one call: a float32 row of ff_dim each and, in the
/// fast mode, the same row quantised to the down weight's format.
[[nodiscard]] std::uint64_t expert_ffn_workspace_bytes(std::uint32_t n_assignments,
                                                       std::uint32_t ff_dim, WeightType down_type,
                                                       ActivationMode mode);

/// The output head's hyper-connection and norm: h = sum_s w[s] X[s], w[s] = sigmoid(z[s] * scale +
/// base[s]) + eps; hidden = rms(h) * norm_weight. The vocabulary product is a matmul.
struct HcHeadParams {
    WeightMatrix fn;           // [n_streams, n_streams * hidden]
    const float* base;         // [n_streams]
    const float* scale;        // [1]
    const float* norm_weight;  // [hidden]
    const float* streams;      // [T, n_streams, hidden]
    float* output;             // [T, hidden]
    std::uint32_t n_tokens;
    std::uint32_t n_streams;
    std::uint32_t hidden;
    float rms_epsilon;
    float hc_epsilon;
};

/// Input of the draft head: X[s] = rms(table[id], enorm) . e_proj + rms(Hin[s], hnorm) . h_proj.
struct MtpInputParams {
    WeightMatrix table;           // the main model's token_embd
    WeightMatrix e_proj;          // [hidden, hidden]
    WeightMatrix h_proj;          // [hidden, hidden]
    const float* enorm;           // [hidden]
    const float* hnorm;           // [hidden]
    const std::int32_t* ids;      // [T]
    const float* hidden_streams;  // [T, n_streams, hidden] of the target, before its output head
    float* streams;               // [T, n_streams, hidden] out; must not be hidden_streams
    void* workspace;              // mtp_input_workspace_bytes(T, n_streams, hidden)
    std::uint32_t n_tokens;
    std::uint32_t n_streams;
    std::uint32_t hidden;
    float rms_epsilon;
    ActivationMode mode;
};
/// Same size in both modes: the quantised rows are smaller than the float32 rows they replace.
[[nodiscard]] std::uint64_t mtp_input_workspace_bytes(std::uint32_t n_tokens,
                                                      std::uint32_t n_streams,
                                                      std::uint32_t hidden);

/// Rows [row_first, row_last) of a weight as float32, or as float16 (fp16 cache).
struct DequantizeParams {
    WeightMatrix weight;
    std::uint32_t row_first;
    std::uint32_t row_last;
    void* output;  // [row_last - row_first, n_in] f32 or f16, by function
};

/// Bytes of a compressor's state brought to "nothing seen": values 0, scores -1e30 (weight 0 in any
/// softmax).
void compressor_reset(void* state, std::uint32_t ratio, std::uint32_t width);

namespace cpu {

void embed(const EmbedParams& params, const Workers& workers);
void hc_mix(const HcMixParams& params, const Workers& workers);
void hc_merge(const HcMergeParams& params, const Workers& workers);
void quantize_activations(const QuantizeParams& params, const Workers& workers);
void matmul(const MatmulParams& params, const Workers& workers);
void rms_norm(const RmsNormParams& params, const Workers& workers);
void rope(const RopeOpParams& params, const Workers& workers);
void round_kv_rows(const RoundKvParams& params, const Workers& workers);
void round_indexer_rows(const RoundIndexerParams& params, const Workers& workers);
void store_kv_rows(const StoreKvParams& params, const Workers& workers);
void store_indexer_rows(const StoreIndexerParams& params, const Workers& workers);
void load_kv_rows(const LoadKvParams& params, const Workers& workers);
void load_indexer_rows(const LoadIndexerParams& params, const Workers& workers);
void compress(const CompressorParams& params, const Workers& workers);
void indexer_query(const IndexerQueryParams& params, const Workers& workers);
void indexer_select(const IndexerSelectParams& params, const Workers& workers);
void attention(const AttentionParams& params, const Workers& workers);
void route(const RouterParams& params, const Workers& workers);
void group_by_expert(const GroupByExpertParams& params);
void expert_ffn(const ExpertFfnParams& params, const Workers& workers);
void hc_head(const HcHeadParams& params, const Workers& workers);
void mtp_input(const MtpInputParams& params, const Workers& workers);
void dequantize_f32(const DequantizeParams& params, const Workers& workers);
void dequantize_f16(const DequantizeParams& params, const Workers& workers);

/// Index of the largest logit, the lowest among equals; n >= 1.
[[nodiscard]] std::int32_t argmax(const float* logits, std::uint32_t n);

/// The instruction set the dot products run on: "avx512", "avx2" or "portable". Summation order may
/// differ between them and is fixed within a process.
[[nodiscard]] const char* isa_name();

}  // namespace cpu
}  // namespace plimsoll::kernels
