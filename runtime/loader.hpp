#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "planner/result.hpp"
#include "runtime/tensor_load.hpp"

namespace plimsoll {

/// Called from the loading thread that the caller is in, now and then and at the end.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// Fills memory from the models' files. `n_threads` read at a time, the caller's among them.
///
/// Refuses a file that is not the size it was planned with (kind bad_file). A read that fails, or a
/// file that ends too early, is an error of kind io which names the tensor, the file and the
/// offset. A routing table that names an expert outside [0, n_experts) is of kind bad_file: it is
/// checked here, once, and not at every token.
[[nodiscard]] Status load_tensors(std::span<const TensorLoad> loads, std::uint32_t n_threads,
                                  const LoadProgress& progress);

}  // namespace plimsoll
