#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/blas.hpp"
#include "kernels/cuda/decode.hpp"
#include "planner/schedule.hpp"
#include "runtime/bindings.hpp"

namespace plimsoll {

/// What does not change between the launches of a run on a GPU.
struct GpuSetting {
    const Hyperparameters& hyper;
    const Bindings& bindings;
    kernels::cuda::Arithmetic arithmetic = kernels::cuda::Arithmetic::fast;
    kernels::CacheRounding rounding = kernels::CacheRounding::on;
    const kernels::cuda::Blas& blas;  // open where the plan has an fp16 cache
};

/// What an op works on: the tokens of a call, the layer or head whose turn it is, and where the
/// buffers of its phase lie. All pointers are the device's.
struct GpuStep {
    const GpuSetting& setting;
    kernels::cuda::Launch launch;
    std::uint64_t first_position = 0;         // of token 0, as launch.state has it
    std::uint32_t n_tokens = 0;               // T
    const std::int32_t* token_ids = nullptr;  // [T]
    float* streams = nullptr;                 // [T, n_streams, hidden] of the main model or draft
    const PhaseBuffers* buffers = nullptr;
    const LayerBinding* layer = nullptr;       // null outside layers
    const HeadBinding* head = nullptr;         // null outside heads
    const LayerBinding* next_layer = nullptr;  // in a decode step; null behind the last one

    [[nodiscard]] const Hyperparameters& hyper() const { return setting.hyper; }
    [[nodiscard]] const LayerWeights& weights() const { return layer->weights; }
    [[nodiscard]] bool is_precise() const {
        return setting.arithmetic == kernels::cuda::Arithmetic::precise;
    }

    /// A buffer of the phase as elements of `T`, or null where it has none.
    template <class T>
    [[nodiscard]] T* buffer(BufferRole role) const {
        return reinterpret_cast<T*>((*buffers)[static_cast<std::size_t>(role)]);
    }
    [[nodiscard]] float* floats(BufferRole role) const { return buffer<float>(role); }
    [[nodiscard]] std::int32_t* ids(BufferRole role) const { return buffer<std::int32_t>(role); }
};

/// What launches an op of the schedule on a GPU. Never allocates, waits or fails.
using GpuOpFunction = void (*)(const GpuStep&);

/// The function of an op kind; null for kinds that no GPU schedule has.
[[nodiscard]] GpuOpFunction gpu_op(OpKind kind);

}  // namespace plimsoll
