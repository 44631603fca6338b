#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/layout.hpp"
#include "runtime/bindings.hpp"

namespace plimsoll {

/// A tensor's bytes as a matrix of the kernels. Of a tensor of experts: the shape of one of them.
[[nodiscard]] kernels::WeightMatrix matrix_at(const Tensor& tensor, const std::byte* data);

/// The tensors of a dense region by role.
class DenseWeights {
public:
    DenseWeights(const std::vector<TensorPlace>& places, const std::byte* base);

    /// The tensor, with null data where the region has none of this role.
    [[nodiscard]] kernels::WeightMatrix matrix(TensorRole role) const;
    /// The same for vectors of F32 and I32.
    [[nodiscard]] const float* floats(TensorRole role) const;
    [[nodiscard]] const std::int32_t* ids(TensorRole role) const;

private:
    struct Entry {
        const Tensor* tensor = nullptr;
        const std::byte* data = nullptr;
    };

    [[nodiscard]] const Entry& entry(TensorRole role) const {
        return entries_[static_cast<std::size_t>(role)];
    }

    std::array<Entry, static_cast<std::size_t>(TensorRole::count)> entries_{};
};

/// All of a layer's weights outside its routed experts.
[[nodiscard]] LayerWeights layer_weights(const DenseWeights& weights);

}  // namespace plimsoll
