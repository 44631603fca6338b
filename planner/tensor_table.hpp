#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/model.hpp"
#include "planner/tensor_type.hpp"

namespace plimsoll {

/// What a tensor's bytes are for, as far as placement tells them apart.
enum class WeightClass : std::uint8_t { embedding, dense, experts };

/// Which layers of a model have a tensor.
enum class LayerSet : std::uint8_t {
    none,  // it belongs to the model, not to a layer
    every,
    compressed,  // compress ratio 4 or 128
    indexed,     // compress ratio 4
    hashed,      // the leading layers, routed by token id
    scored,      // the others, routed by score
};

/// Which types a tensor may have, and where its type comes from when a model is made from a recipe.
enum class StorageRule : std::uint8_t {
    f32,     // always F32: norms, sinks, biases, scales
    ids,     // always I32
    small,   // from the recipe; F32, F16 or BF16: read element by element or kept at high precision
    matrix,  // from the recipe; any floating or block type
};

/// One row a role: adding a tensor is adding a row.
struct TensorRoleInfo {
    TensorRole role;
    std::string_view suffix;  // after "blk.N." or "mtp.0."; the whole name where LayerSet::none
    LayerSet layers;
    bool in_main;
    bool in_mtp;
    bool optional;  // in the main file; the draft head needs all of its tensors
    StorageRule storage;
    WeightClass weight_class;
    /// GGUF order, row length first. `ratio` is the layer's compress ratio.
    std::vector<std::uint64_t> (*dims)(const Hyperparameters& hyper, std::uint32_t ratio);
};

/// All rows, in the order of TensorRole.
[[nodiscard]] std::span<const TensorRoleInfo> tensor_roles();

/// The row of a role other than `count`.
[[nodiscard]] const TensorRoleInfo& info_of(TensorRole role);

/// True where a model of this kind and shape has `row` in `layer` (kNoLayer for LayerSet::none).
[[nodiscard]] bool layer_has(const TensorRoleInfo& row, ModelKind kind,
                             const Hyperparameters& hyper, std::int32_t layer);

/// True where the engine can read a tensor stored under `rule` as `type`.
[[nodiscard]] bool accepts(StorageRule rule, TensorType type);

/// Why no engine reads `tensor` as it is stored ("tensor 'x': type Q8_0 is not supported here");
/// empty where one does.
[[nodiscard]] std::string storage_problem(const Tensor& tensor);

}  // namespace plimsoll
