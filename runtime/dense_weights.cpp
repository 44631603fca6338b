#include "runtime/dense_weights.hpp"

#include <fmt/format.h>

#include "planner/check.hpp"

namespace plimsoll {
namespace {

struct MatrixRow {
    TensorRole role;
    kernels::WeightMatrix LayerWeights::*member;
};
constexpr MatrixRow kMatrices[] = {
    {TensorRole::hc_attn_fn, &LayerWeights::hc_attn_fn},
    {TensorRole::hc_ffn_fn, &LayerWeights::hc_ffn_fn},
    {TensorRole::attn_q_a, &LayerWeights::q_a},
    {TensorRole::attn_q_b, &LayerWeights::q_b},
    {TensorRole::attn_kv, &LayerWeights::kv},
    {TensorRole::attn_output_a, &LayerWeights::output_a},
    {TensorRole::attn_output_b, &LayerWeights::output_b},
    {TensorRole::attn_compressor_kv, &LayerWeights::compressor_kv},
    {TensorRole::attn_compressor_gate, &LayerWeights::compressor_gate},
    {TensorRole::attn_compressor_ape, &LayerWeights::compressor_ape},
    {TensorRole::indexer_attn_q_b, &LayerWeights::indexer_q_b},
    {TensorRole::indexer_proj, &LayerWeights::indexer_proj},
    {TensorRole::indexer_compressor_kv, &LayerWeights::indexer_compressor_kv},
    {TensorRole::indexer_compressor_gate, &LayerWeights::indexer_compressor_gate},
    {TensorRole::indexer_compressor_ape, &LayerWeights::indexer_compressor_ape},
    {TensorRole::ffn_gate_inp, &LayerWeights::router},
    {TensorRole::ffn_gate_shexp, &LayerWeights::shared_gate},
    {TensorRole::ffn_up_shexp, &LayerWeights::shared_up},
    {TensorRole::ffn_down_shexp, &LayerWeights::shared_down},
};

struct VectorRow {
    TensorRole role;
    const float* LayerWeights::*member;
};
constexpr VectorRow kVectors[] = {
    {TensorRole::hc_attn_scale, &LayerWeights::hc_attn_scale},
    {TensorRole::hc_attn_base, &LayerWeights::hc_attn_base},
    {TensorRole::hc_ffn_scale, &LayerWeights::hc_ffn_scale},
    {TensorRole::hc_ffn_base, &LayerWeights::hc_ffn_base},
    {TensorRole::attn_norm, &LayerWeights::attn_norm},
    {TensorRole::attn_q_a_norm, &LayerWeights::q_a_norm},
    {TensorRole::attn_kv_a_norm, &LayerWeights::kv_norm},
    {TensorRole::attn_sinks, &LayerWeights::sinks},
    {TensorRole::attn_compressor_norm, &LayerWeights::compressor_norm},
    {TensorRole::indexer_compressor_norm, &LayerWeights::indexer_compressor_norm},
    {TensorRole::ffn_norm, &LayerWeights::ffn_norm},
    {TensorRole::exp_probs_b, &LayerWeights::router_bias},
};

}  // namespace

kernels::WeightMatrix matrix_at(const Tensor& tensor, const std::byte* data) {
    PLIMSOLL_CHECK(tensor.dims.size() >= 2, fmt::format("{} is no matrix", tensor.name));
    // Ids in TensorType and WeightType are the file's own.
    return {data, static_cast<kernels::WeightType>(tensor.type),
            static_cast<std::uint32_t>(tensor.dims[0]), static_cast<std::uint32_t>(tensor.dims[1])};
}

DenseWeights::DenseWeights(const std::vector<TensorPlace>& places, const std::byte* base) {
    for (const TensorPlace& place : places)
        entries_[static_cast<std::size_t>(place.tensor->role)] = {place.tensor,
                                                                  base + place.offset_bytes};
}

kernels::WeightMatrix DenseWeights::matrix(TensorRole role) const {
    const Entry& found = entry(role);
    return found.tensor == nullptr ? kernels::WeightMatrix{} : matrix_at(*found.tensor, found.data);
}

const float* DenseWeights::floats(TensorRole role) const {
    return reinterpret_cast<const float*>(entry(role).data);
}

const std::int32_t* DenseWeights::ids(TensorRole role) const {
    return reinterpret_cast<const std::int32_t*>(entry(role).data);
}

LayerWeights layer_weights(const DenseWeights& weights) {
    LayerWeights out;
    for (const MatrixRow& row : kMatrices) out.*row.member = weights.matrix(row.role);
    for (const VectorRow& row : kVectors) out.*row.member = weights.floats(row.role);
    out.router_table = weights.ids(TensorRole::ffn_gate_tid2eid);
    return out;
}

}  // namespace plimsoll
