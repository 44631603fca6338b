#include "planner/tensor_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/check.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

using H = Hyperparameters;
using Dims = std::vector<std::uint64_t>;

std::uint64_t u(std::uint32_t value) { return value; }

// Ratio-4 layers compress overlapping windows: two interleaved halves, twice the width.
std::uint64_t compressed_width(std::uint32_t width, std::uint32_t ratio) {
    return u(width) * (ratio == 4 ? 2 : 1);
}

Dims hidden(const H& h, std::uint32_t) { return {u(h.hidden_size)}; }
Dims hidden_by_experts(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.n_experts)}; }
Dims hidden_by_vocab(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.vocab_size)}; }
Dims hidden_by_hidden(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.hidden_size)}; }
Dims head(const H& h, std::uint32_t) { return {u(h.head_dim)}; }
Dims experts(const H& h, std::uint32_t) { return {u(h.n_experts)}; }

// A stream mixer yields a read and a write weight per stream and an S x S mixing matrix.
Dims mixer_fn(const H& h, std::uint32_t) {
    return {u(h.hidden_size) * h.n_streams, u(h.n_streams) * (2 + u(h.n_streams))};
}
Dims mixer_base(const H& h, std::uint32_t) { return {u(h.n_streams) * (2 + u(h.n_streams))}; }
Dims mixer_scale(const H&, std::uint32_t) { return {3}; }
Dims head_mixer_fn(const H& h, std::uint32_t) {
    return {u(h.hidden_size) * h.n_streams, u(h.n_streams)};
}
Dims head_mixer_base(const H& h, std::uint32_t) { return {u(h.n_streams)}; }
Dims head_mixer_scale(const H&, std::uint32_t) { return {1}; }

Dims q_a(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.q_lora_rank)}; }
Dims q_a_norm(const H& h, std::uint32_t) { return {u(h.q_lora_rank)}; }
Dims q_b(const H& h, std::uint32_t) { return {u(h.q_lora_rank), u(h.n_heads) * h.head_dim}; }
Dims kv(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.head_dim)}; }
Dims sinks(const H& h, std::uint32_t) { return {u(h.n_heads)}; }
Dims output_a(const H& h, std::uint32_t) {
    return {u(h.n_heads) * h.head_dim / h.n_output_groups,
            u(h.output_lora_rank) * h.n_output_groups};
}
Dims output_b(const H& h, std::uint32_t) {
    return {u(h.output_lora_rank) * h.n_output_groups, u(h.hidden_size)};
}

Dims compressor_matrix(const H& h, std::uint32_t ratio) {
    return {u(h.hidden_size), compressed_width(h.head_dim, ratio)};
}
Dims compressor_ape(const H& h, std::uint32_t ratio) {
    return {compressed_width(h.head_dim, ratio), u(ratio)};
}
Dims indexer_q_b(const H& h, std::uint32_t) {
    return {u(h.q_lora_rank), u(h.indexer_n_heads) * h.indexer_head_dim};
}
Dims indexer_proj(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.indexer_n_heads)}; }
Dims indexer_matrix(const H& h, std::uint32_t ratio) {
    return {u(h.hidden_size), compressed_width(h.indexer_head_dim, ratio)};
}
Dims indexer_ape(const H& h, std::uint32_t ratio) {
    return {compressed_width(h.indexer_head_dim, ratio), u(ratio)};
}
Dims indexer_norm(const H& h, std::uint32_t) { return {u(h.indexer_head_dim)}; }

Dims hash_table(const H& h, std::uint32_t) { return {u(h.n_experts_used), u(h.vocab_size)}; }
Dims shared_up(const H& h, std::uint32_t) { return {u(h.hidden_size), u(h.expert_ff_dim)}; }
Dims shared_down(const H& h, std::uint32_t) { return {u(h.expert_ff_dim), u(h.hidden_size)}; }
Dims routed_up(const H& h, std::uint32_t) {
    return {u(h.hidden_size), u(h.expert_ff_dim), u(h.n_experts)};
}
Dims routed_down(const H& h, std::uint32_t) {
    return {u(h.expert_ff_dim), u(h.hidden_size), u(h.n_experts)};
}

constexpr bool kMain = true, kMtp = true, kOptional = true;
constexpr auto kDense = WeightClass::dense;
using R = TensorRole;
using L = LayerSet;
using S = StorageRule;

// Names and dims as the published DeepSeek-V4-Flash GGUF files have them.
// clang-format off
constexpr TensorRoleInfo kRoles[] = {
    // role                     suffix                             layers         main   mtp    optional    storage    class                   dims
    {R::token_embd,             "token_embd.weight",               L::none,       kMain, false, false,      S::matrix, WeightClass::embedding, hidden_by_vocab},
    {R::output,                 "output.weight",                   L::none,       kMain, false, false,      S::matrix, kDense,                 hidden_by_vocab},
    {R::output_norm,            "output_norm.weight",              L::none,       kMain, false, false,      S::f32,    kDense,                 hidden},
    {R::output_hc_fn,           "output_hc_fn.weight",             L::none,       kMain, false, false,      S::small,  kDense,                 head_mixer_fn},
    {R::output_hc_base,         "output_hc_base.weight",           L::none,       kMain, false, false,      S::f32,    kDense,                 head_mixer_base},
    {R::output_hc_scale,        "output_hc_scale.weight",          L::none,       kMain, false, false,      S::f32,    kDense,                 head_mixer_scale},
    {R::hc_attn_fn,             "hc_attn_fn.weight",               L::every,      kMain, kMtp,  false,      S::small,  kDense,                 mixer_fn},
    {R::hc_attn_scale,          "hc_attn_scale.weight",            L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 mixer_scale},
    {R::hc_attn_base,           "hc_attn_base.weight",             L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 mixer_base},
    {R::attn_norm,              "attn_norm.weight",                L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 hidden},
    {R::attn_q_a,               "attn_q_a.weight",                 L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 q_a},
    {R::attn_q_a_norm,          "attn_q_a_norm.weight",            L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 q_a_norm},
    {R::attn_q_b,               "attn_q_b.weight",                 L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 q_b},
    {R::attn_kv,                "attn_kv.weight",                  L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 kv},
    {R::attn_kv_a_norm,         "attn_kv_a_norm.weight",           L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 head},
    {R::attn_sinks,             "attn_sinks.weight",               L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 sinks},
    {R::attn_output_a,          "attn_output_a.weight",            L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 output_a},
    {R::attn_output_b,          "attn_output_b.weight",            L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 output_b},
    {R::attn_compressor_kv,     "attn_compressor_kv.weight",       L::compressed, kMain, false, false,      S::matrix, kDense,                 compressor_matrix},
    {R::attn_compressor_gate,   "attn_compressor_gate.weight",     L::compressed, kMain, false, false,      S::matrix, kDense,                 compressor_matrix},
    {R::attn_compressor_ape,    "attn_compressor_ape.weight",      L::compressed, kMain, false, false,      S::small,  kDense,                 compressor_ape},
    {R::attn_compressor_norm,   "attn_compressor_norm.weight",     L::compressed, kMain, false, false,      S::f32,    kDense,                 head},
    {R::indexer_attn_q_b,       "indexer.attn_q_b.weight",         L::indexed,    kMain, false, false,      S::matrix, kDense,                 indexer_q_b},
    {R::indexer_proj,           "indexer.proj.weight",             L::indexed,    kMain, false, false,      S::matrix, kDense,                 indexer_proj},
    {R::indexer_compressor_kv,  "indexer_compressor_kv.weight",    L::indexed,    kMain, false, false,      S::matrix, kDense,                 indexer_matrix},
    {R::indexer_compressor_gate,"indexer_compressor_gate.weight",  L::indexed,    kMain, false, false,      S::matrix, kDense,                 indexer_matrix},
    {R::indexer_compressor_ape, "indexer_compressor_ape.weight",   L::indexed,    kMain, false, false,      S::small,  kDense,                 indexer_ape},
    {R::indexer_compressor_norm,"indexer_compressor_norm.weight",  L::indexed,    kMain, false, false,      S::f32,    kDense,                 indexer_norm},
    {R::hc_ffn_fn,              "hc_ffn_fn.weight",                L::every,      kMain, kMtp,  false,      S::small,  kDense,                 mixer_fn},
    {R::hc_ffn_scale,           "hc_ffn_scale.weight",             L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 mixer_scale},
    {R::hc_ffn_base,            "hc_ffn_base.weight",              L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 mixer_base},
    {R::ffn_norm,               "ffn_norm.weight",                 L::every,      kMain, kMtp,  false,      S::f32,    kDense,                 hidden},
    {R::ffn_gate_inp,           "ffn_gate_inp.weight",             L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 hidden_by_experts},
    {R::exp_probs_b,            "exp_probs_b.bias",                L::scored,     kMain, kMtp,  kOptional,  S::f32,    kDense,                 experts},
    {R::ffn_gate_tid2eid,       "ffn_gate_tid2eid.weight",         L::hashed,     kMain, false, false,      S::ids,    kDense,                 hash_table},
    {R::ffn_gate_shexp,         "ffn_gate_shexp.weight",           L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 shared_up},
    {R::ffn_up_shexp,           "ffn_up_shexp.weight",             L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 shared_up},
    {R::ffn_down_shexp,         "ffn_down_shexp.weight",           L::every,      kMain, kMtp,  false,      S::matrix, kDense,                 shared_down},
    {R::ffn_gate_exps,          "ffn_gate_exps.weight",            L::every,      kMain, kMtp,  false,      S::matrix, WeightClass::experts,   routed_up},
    {R::ffn_up_exps,            "ffn_up_exps.weight",              L::every,      kMain, kMtp,  false,      S::matrix, WeightClass::experts,   routed_up},
    {R::ffn_down_exps,          "ffn_down_exps.weight",            L::every,      kMain, kMtp,  false,      S::matrix, WeightClass::experts,   routed_down},
    {R::mtp_e_proj,             "e_proj.weight",                   L::every,      false, kMtp,  false,      S::matrix, kDense,                 hidden_by_hidden},
    {R::mtp_h_proj,             "h_proj.weight",                   L::every,      false, kMtp,  false,      S::matrix, kDense,                 hidden_by_hidden},
    {R::mtp_enorm,              "enorm.weight",                    L::every,      false, kMtp,  false,      S::f32,    kDense,                 hidden},
    {R::mtp_hnorm,              "hnorm.weight",                    L::every,      false, kMtp,  false,      S::f32,    kDense,                 hidden},
    {R::mtp_norm,               "norm.weight",                     L::every,      false, kMtp,  false,      S::f32,    kDense,                 hidden},
    {R::mtp_hc_head_fn,         "hc_head_fn.weight",               L::every,      false, kMtp,  false,      S::small,  kDense,                 head_mixer_fn},
    {R::mtp_hc_head_base,       "hc_head_base.weight",             L::every,      false, kMtp,  false,      S::f32,    kDense,                 head_mixer_base},
    {R::mtp_hc_head_scale,      "hc_head_scale.weight",            L::every,      false, kMtp,  false,      S::f32,    kDense,                 head_mixer_scale},
};
// clang-format on

constexpr bool rows_follow_the_enum() {
    for (std::size_t at = 0; at < std::size(kRoles); ++at)
        if (static_cast<std::size_t>(kRoles[at].role) != at) return false;
    return std::size(kRoles) == static_cast<std::size_t>(TensorRole::count);
}
static_assert(rows_follow_the_enum());

std::uint32_t ratio_of(ModelKind kind, const H& hyper, std::int32_t layer) {
    if (kind == ModelKind::mtp || layer == kNoLayer) return 0;
    return hyper.compress_ratios[static_cast<std::size_t>(layer)];
}

TensorType type_under(const StorageRecipe& recipe, StorageRule rule, const std::string& name) {
    if (rule == StorageRule::f32) return TensorType::f32;
    if (rule == StorageRule::ids) return TensorType::i32;
    for (const auto& [part, type] : recipe.rules)
        if (name.find(part) != std::string::npos) return type;
    return recipe.fallback;
}

}  // namespace

std::span<const TensorRoleInfo> tensor_roles() { return kRoles; }

const TensorRoleInfo& info_of(TensorRole role) {
    PLIMSOLL_CHECK(role < TensorRole::count, "role out of range");
    return kRoles[static_cast<std::size_t>(role)];
}

bool layer_has(const TensorRoleInfo& row, ModelKind kind, const Hyperparameters& hyper,
               std::int32_t layer) {
    if (!(kind == ModelKind::main ? row.in_main : row.in_mtp)) return false;
    if (row.layers == LayerSet::none || layer == kNoLayer)
        return row.layers == LayerSet::none && layer == kNoLayer;
    const std::uint32_t ratio = ratio_of(kind, hyper, layer);
    const bool hashed =
        kind == ModelKind::main && static_cast<std::uint32_t>(layer) < hyper.n_hash_layers;
    switch (row.layers) {
        case LayerSet::none: return false;
        case LayerSet::every: return true;
        case LayerSet::compressed: return ratio != 0;
        case LayerSet::indexed: return ratio == 4;
        case LayerSet::hashed: return hashed;
        case LayerSet::scored: return !hashed;
    }
    return false;
}

bool accepts(StorageRule rule, TensorType type) {
    const bool plain_float =
        type == TensorType::f32 || type == TensorType::f16 || type == TensorType::bf16;
    switch (rule) {
        case StorageRule::f32: return type == TensorType::f32;
        case StorageRule::ids: return type == TensorType::i32;
        case StorageRule::small: return plain_float;
        case StorageRule::matrix: return type != TensorType::i32;
    }
    return false;
}

std::string storage_problem(const Tensor& tensor) {
    const TensorTypeInfo& type = info_of(tensor.type);
    if (!accepts(info_of(tensor.role).storage, tensor.type))
        return fmt::format("tensor '{}': type {} is not supported here", tensor.name, type.name);
    if (tensor.dims[0] % type.block_elements != 0)
        return fmt::format("tensor '{}': rows of {} are not whole {} blocks of {}", tensor.name,
                           tensor.dims[0], type.name, type.block_elements);
    return {};
}

std::string tensor_name(ModelKind kind, TensorRole role, std::int32_t layer) {
    const TensorRoleInfo& row = info_of(role);
    if (row.layers == LayerSet::none) return std::string(row.suffix);
    return fmt::format("{}.{}.{}", kind == ModelKind::main ? "blk" : "mtp", layer, row.suffix);
}

std::vector<Tensor> tensors_of(ModelKind kind, const Hyperparameters& hyper,
                               const StorageRecipe& recipe) {
    std::vector<Tensor> tensors;
    std::uint64_t offset_bytes = 0;
    const auto layer_count =
        static_cast<std::int32_t>(kind == ModelKind::main ? hyper.n_layers : 1);
    for (std::int32_t layer = kNoLayer; layer < layer_count; ++layer) {
        for (const TensorRoleInfo& row : kRoles) {
            if (!layer_has(row, kind, hyper, layer)) continue;
            Tensor tensor;
            tensor.name = tensor_name(kind, row.role, layer);
            tensor.role = row.role;
            tensor.layer = layer;
            tensor.type = type_under(recipe, row.storage, tensor.name);
            tensor.dims = row.dims(hyper, ratio_of(kind, hyper, layer));
            tensor.file_offset_bytes = offset_bytes;
            std::uint64_t elements = 1;
            for (const std::uint64_t dim : tensor.dims) elements *= dim;
            tensor.size_bytes = storage_bytes(tensor.type, elements);
            offset_bytes += align_up(tensor.size_bytes, kFileAlignmentBytes);
            tensors.push_back(std::move(tensor));
        }
    }
    return tensors;
}

}  // namespace plimsoll
