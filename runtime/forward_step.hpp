#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.hpp"
#include "runtime/bindings.hpp"
#include "runtime/expert_supply.hpp"

namespace plimsoll {

/// What does not change between the ops of a run.
struct ForwardSetting {
    const Hyperparameters& hyper;
    const Bindings& bindings;
    const kernels::Workers& workers;
    kernels::ActivationMode mode = kernels::ActivationMode::fast;
    kernels::CacheRounding rounding = kernels::CacheRounding::on;
    ExpertSupply& experts;
};

/// What an op works on: the tokens of a call, the layer or head whose turn it is, and where the
/// buffers of its phase lie.
struct ForwardStep {
    const ForwardSetting& setting;
    std::uint64_t first_position = 0;         // of token 0
    std::uint32_t n_tokens = 0;               // T
    const std::int32_t* token_ids = nullptr;  // [T]
    float* streams = nullptr;                 // [T, n_streams, hidden] of the main model or draft
    const PhaseBuffers* buffers = nullptr;
    const LayerBinding* layer = nullptr;  // null outside layers
    const HeadBinding* head = nullptr;    // null outside heads

    [[nodiscard]] const Hyperparameters& hyper() const { return setting.hyper; }
    [[nodiscard]] const kernels::Workers& workers() const { return setting.workers; }
    [[nodiscard]] const LayerWeights& weights() const { return layer->weights; }

    /// A buffer of the phase as elements of `T`, or null where it has none.
    template <class T>
    [[nodiscard]] T* buffer(BufferRole role) const {
        return reinterpret_cast<T*>((*buffers)[static_cast<std::size_t>(role)]);
    }
    [[nodiscard]] float* floats(BufferRole role) const { return buffer<float>(role); }
    [[nodiscard]] std::int32_t* ids(BufferRole role) const { return buffer<std::int32_t>(role); }
};

}  // namespace plimsoll
