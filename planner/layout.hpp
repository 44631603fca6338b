#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan.hpp"

namespace plimsoll {

/// Inner layouts of regions: the one arithmetic that the planner sizes with and the runtime loads
/// and binds by.

/// A tensor inside a dense region.
struct TensorPlace {
    const Tensor* tensor = nullptr;
    std::uint64_t offset_bytes = 0;  // from the region's (or slot's) start
};

/// The tensors of a dense region in role order, each aligned: layer_dense (of `layer`), head_dense,
/// head_output, embedding, and for the draft head mtp_dense.
[[nodiscard]] std::vector<TensorPlace> dense_layout(const Model& model, RegionKind kind,
                                                    std::int32_t layer = kNoLayer);
/// Its size: the end of the last tensor, aligned.
[[nodiscard]] std::uint64_t dense_bytes(const Model& model, RegionKind kind,
                                        std::int32_t layer = kNoLayer);

/// F16 copies of `tensors` of a layer, in that order, each aligned.
[[nodiscard]] std::vector<TensorPlace> fp16_layout(const Model& model, std::int32_t layer,
                                                   const std::vector<TensorRole>& tensors);
/// Tensors of a layer that an fp16 cache may hold, in role order: quantised attention and
/// shared-expert matrices.
[[nodiscard]] std::vector<TensorRole> fp16_candidates(const Model& model, std::int32_t layer);
[[nodiscard]] std::uint64_t fp16_tensor_bytes(const Tensor& tensor);

/// Bytes of a region of cached KV rows; each plane of the packed format starts at a multiple of
/// 256.
///   f32:     [rows, head_dim] float32
///   packed:  [rows, head_dim - rope_dim] E4M3; [rows, blocks of 64 rounded up to 8] scale
///   exponents;
///            [rows, rope_dim] F16
[[nodiscard]] std::uint64_t kv_rows_bytes(KvFormat format, std::uint64_t rows,
                                          std::uint64_t head_dim, std::uint64_t rope_dim);
/// The same for indexer rows: [rows, dim / 2] E2M1 pairs; [rows, blocks of 32 rounded up to 4]
/// exponents.
[[nodiscard]] std::uint64_t indexer_rows_bytes(KvFormat format, std::uint64_t rows,
                                               std::uint64_t dim);
/// Float32 values and scores of a compressor's unfinished window (two windows and lanes for ratio
/// 4).
[[nodiscard]] std::uint64_t compressor_state_bytes(std::uint64_t ratio, std::uint64_t dim);

/// Rows of a layer's window ring, and of its compressed rows at a context.
[[nodiscard]] std::uint64_t window_ring_rows(const Hyperparameters& hyper, const Grant& grant);
[[nodiscard]] std::uint64_t compressed_rows(const Grant& grant, std::uint64_t ratio);

/// Vocabulary rows of the output head that are staged at a time where it is streamed.
[[nodiscard]] std::uint64_t head_tile_rows(const Model& model);

/// Slots an expert pool needs at least: the experts of `1 + drafts` tokens, for two layers.
[[nodiscard]] std::uint64_t expert_floor_slots(const Hyperparameters& hyper, std::uint64_t drafts);

}  // namespace plimsoll
