#pragma once

#include <cstdint>
#include <span>

#include "runtime/loader.hpp"

namespace plimsoll {

/// Fills host memory with the synthetic model of a seed, as load_tensors does from files.
/// `n_threads` make weights at a time, the caller's among them.
void fill_synthetic(std::span<const TensorLoad> loads, std::uint64_t seed, std::uint32_t n_threads,
                    const LoadProgress& progress);

}  // namespace plimsoll
