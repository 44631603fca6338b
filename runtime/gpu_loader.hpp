#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "kernels/cuda/device.hpp"
#include "planner/result.hpp"
#include "runtime/bindings.hpp"
#include "runtime/loader.hpp"

namespace plimsoll {

/// What a GPU's arena is filled with, and through which memory. A chunk of a file passes the pinned
/// ring and the scratch, where it lies as in the file, and its matrices are laid in planes from
/// there (kernels/cuda/weight_planes.hpp):
///
///     file ──read──▶ ring slot (pinned host) ──copy──▶ scratch slot (device) ──repack──▶ its place
///
/// Slots take turns, so that reading, copying and repacking go side by side. A synthetic model is
/// made in the scratch instead, and goes on from there in the same way.
struct GpuLoadSource {
    std::span<const TensorLoad> loads;  // destinations on the device, or pinned
    std::span<const Fp16Fill> fp16_fills;
    std::span<std::byte> ring;                    // pinned host memory
    std::span<std::byte> scratch;                 // device memory that nothing uses yet
    std::uint32_t n_threads = 1;                  // that read
    std::optional<std::uint64_t> synthetic_seed;  // weights are made, and no file is read
};

/// How loading went.
struct GpuLoadFigures {
    std::uint64_t size_bytes = 0;
    double seconds = 0;
    std::string how;       // "io_uring, O_DIRECT"
    std::string fallback;  // why not as it should, in one line; empty where it was

    /// "80.76 GiB in 2.10 s, 41.3 GB/s (16 threads, from memory)".
    [[nodiscard]] std::string text() const;
};

/// Fills a GPU's arena. Errors as load_tensors, and device_lost.
[[nodiscard]] Result<GpuLoadFigures> load_to_gpu(kernels::cuda::Device& device,
                                                 const GpuLoadSource& source,
                                                 const LoadProgress& progress);

}  // namespace plimsoll
