#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cuda/device.hpp"
#include "planner/result.hpp"
#include "runtime/bindings.hpp"
#include "runtime/loader.hpp"

namespace plimsoll {

/// What a GPU's arena is filled with, and through which memory. A piece of a file passes the pinned
/// ring and the scratch, where it lies as in the file, and is laid in planes from there
/// (kernels/cuda/weight_planes.hpp):
///
///     file ──read──▶ ring slot (pinned host) ──copy──▶ scratch slot (device) ──repack──▶ its place
///
/// Slots take turns, so that reading, copying and repacking go side by side.
struct GpuLoadSource {
    std::span<const TensorLoad> loads;  // destinations on the device
    std::span<const Fp16Fill> fp16_fills;
    std::span<std::byte> ring;                    // pinned host memory
    std::span<std::byte> scratch;                 // device memory that nothing uses yet
    std::uint32_t n_threads = 1;                  // that read
    std::optional<std::uint64_t> synthetic_seed;  // weights are made, and no file is read
};

/// Fills a GPU's arena. Errors as load_tensors, and device_lost.
[[nodiscard]] Status load_to_gpu(kernels::cuda::Device& device, const GpuLoadSource& source,
                                 const LoadProgress& progress);

}  // namespace plimsoll
