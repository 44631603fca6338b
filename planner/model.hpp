#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/result.hpp"
#include "planner/tensor_type.hpp"

namespace plimsoll {

/// Numbers of a DeepSeek-V4 model as its GGUF metadata states them (`deepseek4.*` keys).
struct Hyperparameters {
    std::uint32_t n_layers = 0;     // block_count
    std::uint32_t hidden_size = 0;  // embedding_length
    std::uint32_t vocab_size = 0;
    std::uint32_t n_heads = 0;   // attention.head_count
    std::uint32_t head_dim = 0;  // attention.key_length; K and V are the same vector
    std::uint32_t rope_dim = 0;  // the trailing dims of a head
    std::uint32_t q_lora_rank = 0;
    std::uint32_t output_lora_rank = 0;  // per output group
    std::uint32_t n_output_groups = 0;
    std::uint32_t sliding_window_tokens = 0;
    std::uint32_t indexer_n_heads = 0;
    std::uint32_t indexer_head_dim = 0;
    std::uint32_t indexer_top_k = 0;
    std::uint32_t n_experts = 0;       // routed, per layer
    std::uint32_t n_experts_used = 0;  // routed, per token and layer
    std::uint32_t expert_ff_dim = 0;   // inner width, routed and shared
    std::uint32_t n_hash_layers = 0;   // leading layers routed by a table over token ids
    std::uint32_t n_streams = 0;       // hyper_connection.count
    std::uint32_t sinkhorn_iterations = 0;
    std::uint32_t context_length_tokens = 0;  // trained maximum
    std::uint32_t rope_original_context_tokens = 0;
    float expert_weights_scale = 0;
    float rms_epsilon = 0;
    float hc_epsilon = 0;
    float rope_freq_base = 0;           // layers with compress ratio 0
    float compress_rope_freq_base = 0;  // the others
    float rope_scaling_factor = 0;
    float yarn_beta_fast = 0;
    float yarn_beta_slow = 0;
    std::vector<float> swiglu_clamp;             // [n_layers]
    std::vector<std::uint32_t> compress_ratios;  // [n_layers], each 0, 4 or 128

    bool operator==(const Hyperparameters&) const = default;
};

/// What a tensor is for. Order is the canonical order of tensors inside a layer's region.
enum class TensorRole : std::uint8_t {
    token_embd,
    output,
    output_norm,
    output_hc_fn,
    output_hc_base,
    output_hc_scale,
    hc_attn_fn,
    hc_attn_scale,
    hc_attn_base,
    attn_norm,
    attn_q_a,
    attn_q_a_norm,
    attn_q_b,
    attn_kv,
    attn_kv_a_norm,
    attn_sinks,
    attn_output_a,
    attn_output_b,
    attn_compressor_kv,
    attn_compressor_gate,
    attn_compressor_ape,
    attn_compressor_norm,
    indexer_attn_q_b,
    indexer_proj,
    indexer_compressor_kv,
    indexer_compressor_gate,
    indexer_compressor_ape,
    indexer_compressor_norm,
    hc_ffn_fn,
    hc_ffn_scale,
    hc_ffn_base,
    ffn_norm,
    ffn_gate_inp,
    exp_probs_b,
    ffn_gate_tid2eid,
    ffn_gate_shexp,
    ffn_up_shexp,
    ffn_down_shexp,
    ffn_gate_exps,
    ffn_up_exps,
    ffn_down_exps,
    // Only in the draft-head file.
    mtp_e_proj,
    mtp_h_proj,
    mtp_enorm,
    mtp_hnorm,
    mtp_norm,
    mtp_hc_head_fn,
    mtp_hc_head_base,
    mtp_hc_head_scale,
    count,
};

/// Layer index of tensors that belong to no layer.
inline constexpr std::int32_t kNoLayer = -1;

struct Tensor {
    std::string name;  // as in the file: "blk.3.attn_q_a.weight"
    TensorRole role = TensorRole::count;
    std::int32_t layer = kNoLayer;  // 0-based; 0 for the draft head's only layer
    TensorType type = TensorType::f32;
    std::vector<std::uint64_t> dims;      // GGUF order: dims[0] is the row length
    std::uint64_t file_offset_bytes = 0;  // absolute; for an inventory, as the file would have it
    std::uint64_t size_bytes = 0;

    bool operator==(const Tensor&) const = default;
};

/// Which of the two file kinds a model is.
enum class ModelKind : std::uint8_t { main, mtp };

/// The whole of a model that planning needs: no weights, no vocabulary.
struct Model {
    ModelKind kind = ModelKind::main;
    std::string name;             // "flash-q2", or the file's name
    std::string path;             // empty for an inventory without weights
    bool published = true;        // false where the shape was derived and no such file is known
    Hyperparameters hyper;        // for a draft head: only the fields its tensors determine
    std::vector<Tensor> tensors;  // in file order
    std::uint64_t data_offset_bytes = 0;  // where the data section starts
    std::uint64_t data_bytes = 0;         // its length, tensor padding included
    std::uint64_t file_bytes = 0;         // 0 where unknown (inventory)
    std::uint64_t fingerprint = 0;     // over hyperparameters and every tensor's name, type, dims
    std::vector<std::string> notes;    // one line each, for people: what of the file is not used
    std::vector<std::uint32_t> index;  // for `find`; `finish_model` fills it

    /// The tensor, or null where the model has none (an optional one, another layer kind).
    [[nodiscard]] const Tensor* find(TensorRole role, std::int32_t layer = kNoLayer) const;
};

/// Sets what follows from the rest, the fingerprint and the index: the last step of whoever makes a
/// model.
void finish_model(Model& model);

/// One expert of one layer: three byte ranges of the file, and their sum as a slot holds them.
struct ExpertSize {
    std::uint64_t gate_bytes = 0;
    std::uint64_t up_bytes = 0;
    std::uint64_t down_bytes = 0;
    std::uint64_t slot_bytes = 0;  // gate, up, down, each padded to kTensorAlignmentBytes
};

/// Alignment of every tensor inside a planned region: what a device allocation gives, and enough
/// for any vector load.
inline constexpr std::uint64_t kTensorAlignmentBytes = 256;

/// Sizes of one expert of `layer`. The model has been validated: the tensors exist.
[[nodiscard]] ExpertSize expert_size(const Model& model, std::int32_t layer);

/// GGUF name of a role in a layer: (attn_q_a, 3) -> "blk.3.attn_q_a.weight"; for mtp: "mtp.0.…".
[[nodiscard]] std::string tensor_name(ModelKind kind, TensorRole role, std::int32_t layer);

/// GGUF files without `general.alignment` align tensors to this, and those written by us have none.
inline constexpr std::uint64_t kFileAlignmentBytes = 32;

/// How each tensor is stored: a substring of the tensor's name and a type, first match wins, the
/// key "default" last. The same form as in synthetic case files. Norms, sinks, biases, ape-free
/// scale and base tensors are F32 whatever the recipe says.
struct StorageRecipe {
    std::vector<std::pair<std::string, TensorType>> rules;
    TensorType fallback = TensorType::q8_0;
};

/// Every tensor of a model of these hyperparameters, in file order, with dims, types, sizes and
/// offsets as a file written by us has them (data section starting at 0). The one place that knows
/// the tensor list.
[[nodiscard]] std::vector<Tensor> tensors_of(ModelKind kind, const Hyperparameters& hyper,
                                             const StorageRecipe& recipe);

/// Reads a GGUF file's header, or a `configs/models/*.yaml` inventory where `text` names one.
/// `config_dir` is the folder that holds `models/`. Never reads tensor data. Errors list all that
/// is missing, one line.
[[nodiscard]] Result<Model> load_model(const std::string& text, const std::string& config_dir);

}  // namespace plimsoll
