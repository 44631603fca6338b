#pragma once

#include <cstdint>

#include "kernels/cuda/device.hpp"
#include "planner/plan.hpp"
#include "planner/result.hpp"
#include "runtime/arena.hpp"

namespace plimsoll {

/// A failed call on the plan's device or pool `name`: device_lost, or `kind`.
[[nodiscard]] Error error_of(const std::string& name, const kernels::cuda::DeviceProblem& problem,
                             ErrorKind kind);

/// Makes the context of the plan's device: N of "cuda:N", else 0, since a plan for a card by its
/// name is carried out on the first one. Error, kind usage.
[[nodiscard]] Status open_device(const DeviceFacts& facts, kernels::cuda::Device& out);

/// Whether the plan's arena still fits what is free: others may have taken of it since the plan was
/// made. Error, kind no_fit, with how much that is.
[[nodiscard]] Status check_free_memory(const DevicePlan& device, std::uint64_t free_bytes);

/// The arena of a device, in one allocation there. Error, kind no_fit.
[[nodiscard]] Result<ArenaMemory> allocate_device_arena(kernels::cuda::Device& device,
                                                        const Arena& arena);
/// The arena of the host beside a GPU, in one allocation and pinned, so that copies run by
/// themselves. Error, kind no_fit.
[[nodiscard]] Result<ArenaMemory> allocate_pinned_arena(kernels::cuda::Device& device,
                                                        const Arena& arena);

}  // namespace plimsoll
