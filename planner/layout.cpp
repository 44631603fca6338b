#include "planner/layout.hpp"

#include <algorithm>

#include "planner/check.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kFloatBytes = 4;
constexpr std::uint64_t kHalfBytes = 2;

bool is_routed_expert(TensorRole role) {
    return role == TensorRole::ffn_gate_exps || role == TensorRole::ffn_up_exps ||
           role == TensorRole::ffn_down_exps;
}

std::uint64_t plane(std::uint64_t bytes) { return align_up(bytes, kTensorAlignmentBytes); }

void append(std::vector<TensorPlace>& places, const Tensor* tensor) {
    if (tensor == nullptr) return;
    const std::uint64_t at =
        places.empty() ? 0 : places.back().offset_bytes + plane(places.back().tensor->size_bytes);
    places.push_back({tensor, at});
}

/// Every tensor of `layer` except its routed experts, in role order.
void append_layer(std::vector<TensorPlace>& places, const Model& model, std::int32_t layer) {
    for (std::size_t index = 0; index < static_cast<std::size_t>(TensorRole::count); ++index) {
        const auto role = static_cast<TensorRole>(index);
        if (!is_routed_expert(role)) append(places, model.find(role, layer));
    }
}

}  // namespace

std::vector<TensorPlace> dense_layout(const Model& model, RegionKind kind, std::int32_t layer) {
    std::vector<TensorPlace> places;
    switch (kind) {
        case RegionKind::layer_dense: append_layer(places, model, layer); break;
        case RegionKind::head_dense:
            for (const TensorRole role : {TensorRole::output_norm, TensorRole::output_hc_fn,
                                          TensorRole::output_hc_base, TensorRole::output_hc_scale})
                append(places, model.find(role));
            break;
        case RegionKind::head_output: append(places, model.find(TensorRole::output)); break;
        case RegionKind::embedding: append(places, model.find(TensorRole::token_embd)); break;
        case RegionKind::mtp_dense: append_layer(places, model, 0); break;
        default: PLIMSOLL_CHECK(false, "not a region of dense tensors");
    }
    return places;
}

std::uint64_t dense_bytes(const Model& model, RegionKind kind, std::int32_t layer) {
    const std::vector<TensorPlace> places = dense_layout(model, kind, layer);
    return places.empty() ? 0
                          : places.back().offset_bytes + plane(places.back().tensor->size_bytes);
}

std::uint64_t fp16_tensor_bytes(const Tensor& tensor) {
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) elements *= dim;
    return plane(elements * kHalfBytes);
}

std::vector<TensorRole> fp16_candidates(const Model& model, std::int32_t layer) {
    constexpr TensorRole kMatrices[] = {TensorRole::attn_q_a,      TensorRole::attn_q_b,
                                        TensorRole::attn_kv,       TensorRole::attn_output_a,
                                        TensorRole::attn_output_b, TensorRole::ffn_gate_shexp,
                                        TensorRole::ffn_up_shexp,  TensorRole::ffn_down_shexp};
    std::vector<TensorRole> roles;
    for (const TensorRole role : kMatrices) {
        const Tensor* tensor = model.find(role, layer);
        if (tensor != nullptr && info_of(tensor->type).block_elements > 1) roles.push_back(role);
    }
    return roles;
}

std::vector<TensorPlace> fp16_layout(const Model& model, std::int32_t layer,
                                     const std::vector<TensorRole>& tensors) {
    std::vector<TensorPlace> places;
    std::uint64_t at = 0;
    for (const TensorRole role : tensors) {
        const Tensor* tensor = model.find(role, layer);
        places.push_back({tensor, at});
        at += fp16_tensor_bytes(*tensor);
    }
    return places;
}

std::uint64_t kv_rows_bytes(KvFormat format, std::uint64_t rows, std::uint64_t head_dim,
                            std::uint64_t rope_dim) {
    if (format == KvFormat::f32) return plane(rows * head_dim * kFloatBytes);
    const std::uint64_t rounded = head_dim - rope_dim;
    return plane(rows * rounded) + plane(rows * align_up(ceil_div(rounded, 64), 8)) +
           plane(rows * rope_dim * kHalfBytes);
}

std::uint64_t indexer_rows_bytes(KvFormat format, std::uint64_t rows, std::uint64_t dim) {
    if (format == KvFormat::f32) return plane(rows * dim * kFloatBytes);
    return plane(rows * dim / 2) + plane(rows * align_up(ceil_div(dim, 32), 4));
}

std::uint64_t compressor_state_bytes(std::uint64_t ratio, std::uint64_t dim) {
    const std::uint64_t lanes = ratio == 4 ? 2 : 1;
    const std::uint64_t rows = ratio == 4 ? 8 : ratio;
    return 2 * rows * lanes * dim * kFloatBytes;
}

std::uint64_t window_ring_rows(const Hyperparameters& hyper, const Grant& grant) {
    return hyper.sliding_window_tokens + grant.drafts;
}

std::uint64_t compressed_rows(const Grant& grant, std::uint64_t ratio) {
    return grant.context_tokens / ratio + 2;
}

std::uint64_t head_tile_rows(const Model& model) {
    constexpr std::uint64_t kTileBytes = 32 * kMiB;
    const Tensor& output = *model.find(TensorRole::output);
    const std::uint64_t rows = output.dims[1];
    const std::uint64_t row_bytes = output.size_bytes / rows;
    return std::clamp<std::uint64_t>(kTileBytes / row_bytes, 1, rows);
}

std::uint64_t expert_floor_slots(const Hyperparameters& hyper, std::uint64_t drafts) {
    return 2 * (1 + drafts) * hyper.n_experts_used;
}

}  // namespace plimsoll
