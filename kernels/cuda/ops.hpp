#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/ops.hpp"

/// The operations of kernels/ops.hpp on a GPU, for chunks of any number of tokens; decode.hpp has
/// the fused ones for a single token. All pointers are device memory unless said otherwise, weights
/// lie in planes (weight_planes.hpp). The meaning of parameters is that of the CPU functions, with
/// these differences:
/// - `first_position` (and `first_row`) of the parameters are ignored: launch.state->position is
/// the
///   position of token 0. Row indices of compressed rows follow from it.
/// - Frequencies of a RopeTable are host memory, read during the call (they travel by value).
/// - Launchers check shapes, launch on launch.stream and return; a launch that fails stops the
///   program. They never allocate, copy to the host or wait.
/// - Results do not depend on the grid or on timing: no floating-point atomics.
/// - `precise` arithmetic is float32 throughout, and a token's result has the same bits whatever T
/// is.
namespace plimsoll::kernels::cuda {

/// Arithmetic of products and attention. `fast`: tensor cores on float16, float32 sums.
enum class Arithmetic : std::uint8_t { precise, fast };
enum class ElementType : std::uint8_t { f32, f16 };

/// Copies rows [row_first, row_first + n_rows) of a matrix as the file stores them into the planes
/// of the whole matrix.
struct RepackParams {
    const void* file_rows;  // [n_rows] rows of weight_row_bytes
    void* planes;           // of the whole matrix
    WeightType type;
    std::uint32_t n_in;
    std::uint32_t n_out;
    std::uint32_t row_first;
    std::uint32_t n_rows;
};
void repack_weights(const RepackParams& params, const Launch& launch);

/// Planes to float16 rows: fills the fp16 cache.
struct DequantizeF16Params {
    WeightMatrix weight;
    void* output;  // [n_out, n_in] f16
};
void dequantize_f16(const DequantizeF16Params& params, const Launch& launch);

/// float32 to float16, clamped to the largest finite value.
struct ToF16Params {
    const float* input;
    void* output;
    std::uint64_t n;
};
void to_f16(const ToF16Params& params, const Launch& launch);

/// y[t][o] (+)= W[o] . x[t], with groups as in MatmulParams.
///   fast, f16 input:  tensor cores, weights decoded to float16. Any weight type.
///   fast, f32 input:  weights f16: the input as a sum of two float16 (about 22 bits); others as
///                     precise. For what chooses by small differences: routers, compressors,
///                     indexer.
///   precise (f32 input): float32 multiply-adds in a fixed order.
struct ProductParams {
    WeightMatrix weight;
    const void* fp16_weight = nullptr;  // [n_out, n_in] f16: the fp16 cache's copy, or null
    const void* input = nullptr;        // [T, n_groups * weight.n_in]
    ElementType input_type = ElementType::f16;
    void* output = nullptr;  // [T, output_stride]
    ElementType output_type = ElementType::f32;
    std::uint64_t output_stride = 0;  // elements; 0 means weight.n_out
    std::uint32_t n_tokens = 0;
    std::uint32_t n_groups = 1;
    Arithmetic arithmetic = Arithmetic::fast;
    bool accumulate = false;  // f32 output only
};
void product(const ProductParams& params, const Launch& launch);

void embed(const EmbedParams& params, const Launch& launch);
/// `mixed_f16` [T, hidden] f16 or null: the same rows as `mixed`, once more.
void hc_mix(const HcMixParams& params, void* mixed_f16, const Launch& launch);
void hc_merge(const HcMergeParams& params, const Launch& launch);
void hc_head(const HcHeadParams& params, void* output_f16, const Launch& launch);
/// `output_f16` [n_rows, dim] or null.
void rms_norm(const RmsNormParams& params, void* output_f16, const Launch& launch);
void rope(const RopeOpParams& params, const Launch& launch);
void round_kv_rows(const RoundKvParams& params, const Launch& launch);
void store_kv_rows(const StoreKvParams& params, const Launch& launch);
void compress(const CompressorParams& params, const Launch& launch);
void indexer_query(const IndexerQueryParams& params, const Launch& launch);
/// Does nothing but fill `selected` with all rows where every token sees at most top_k.
/// The workspace is indexer_select_workspace_bytes(T, rows.row_capacity).
void indexer_select(const IndexerSelectParams& params, const Launch& launch);
/// Scores of as many tokens at a time as fit 32 MiB (at least one), over all rows.
[[nodiscard]] std::uint64_t indexer_select_workspace_bytes(std::uint32_t n_tokens,
                                                           std::uint32_t row_capacity);

/// precise: q f32 normed and rotated, output f32, as on the CPU (may be in place).
void attention_precise(const AttentionParams& params, const Launch& launch);
/// fast: q comes as the product left it, and is normed per head and rotated on the way in; tensor
/// cores; the output is rotated back and f16.
struct AttentionFastParams {
    AttentionParams shape;  // q, output and inverse_rope are not read
    const void* q_f16;      // [T, n_heads, head_dim] f16, as it leaves the product
    void* output_f16;       // [T, n_heads, head_dim] f16; must not be q_f16
    RopeTable rope;         // of the layer
    float rms_epsilon;      // of the norm per head
};
void attention_fast(const AttentionFastParams& params, const Launch& launch);

void route(const RouterParams& params, const Launch& launch);
/// Also fills `tiles` for expert_ffn: [tile count, then (expert, first assignment) pairs].
struct GroupParams {
    GroupByExpertParams groups;
    std::int32_t* tiles;  // [1 + 2 * expert_tiles_max(T * k, n_experts)]
};
void group_by_expert(const GroupParams& params, const Launch& launch);
/// Tiles of at most kExpertTileRows assignments of one expert.
inline constexpr std::uint32_t kExpertTileRows = 64;
[[nodiscard]] constexpr std::uint32_t expert_tiles_max(std::uint32_t n_assignments,
                                                       std::uint32_t n_experts) {
    const std::uint32_t full = n_assignments / kExpertTileRows;
    return full + (n_assignments < n_experts ? n_assignments : n_experts);
}

/// All routed experts of a chunk, or the shared expert of it.
///     mid = silu(min(x_t . gate, clamp)) * clamp(x_t . up, -clamp, clamp) * w;   y_t (+)= mid .
///     down
/// Sums over a token's experts go by slot, so y has the same bits whatever the grid.
struct ExpertFfnGpuParams {
    WeightMatrix gate, up, down;         // shapes and types; data is that of expert 0
    std::uint64_t expert_stride_bytes;   // from an expert's matrices to the next one's
    const std::int32_t* expert_offsets;  // from group_by_expert; null: one shared expert, weight 1
    const std::int32_t* assignments;
    const std::int32_t* tiles;
    const float* expert_weights;  // [T, k]
    const void* input;            // [T, hidden]: f16 (fast) or f32 (precise)
    float* output;                // [T, hidden]
    void* workspace;              // expert_ffn_workspace_bytes(...)
    std::uint32_t n_experts;
    std::uint32_t n_experts_used;  // k; 1 for the shared expert
    std::uint32_t n_tokens;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    float clamp;
    Arithmetic arithmetic;
    bool accumulate;  // false: output is set
};
void expert_ffn(const ExpertFfnGpuParams& params, const Launch& launch);
/// An inner row per assignment (f16 or f32), and for routed experts an output row each in f32.
[[nodiscard]] std::uint64_t expert_ffn_workspace_bytes(std::uint32_t n_assignments,
                                                       std::uint32_t hidden, std::uint32_t ff_dim,
                                                       bool is_shared, Arithmetic arithmetic);

/// Rows of the draft head's input; products in `arithmetic`. Workspace as on the CPU, mtp_input's.
void mtp_input(const MtpInputParams& params, Arithmetic arithmetic, const Launch& launch);

/// Index of the largest logit of each row, the lowest among equals.
struct ArgmaxParams {
    const float* logits;  // [n_rows, vocab]
    std::int32_t* best;   // [n_rows] out
    std::uint32_t n_rows;
    std::uint32_t vocab;
};
void argmax(const ArgmaxParams& params, const Launch& launch);

/// state = {position, token}, its counters untouched.
void set_step(std::uint64_t position, std::int32_t token, const Launch& launch);
/// state.position += 1; state.token = *next (device memory).
void advance_step(const std::int32_t* next, const Launch& launch);
/// compressor_reset on the device.
void compressor_reset(void* state, std::uint32_t ratio, std::uint32_t width, const Launch& launch);

}  // namespace plimsoll::kernels::cuda
