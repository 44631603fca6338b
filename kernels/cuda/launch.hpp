#pragma once

#include <cstdint>

struct CUstream_st;

namespace plimsoll::kernels::cuda {

/// Counters in StepState::counters, so that no two kernels in flight share one.
enum class Counter : std::uint32_t { attention, indexer, argmax, spare, count };

/// What changes from token to token and therefore may not be baked into a captured graph. Lies in
/// device memory, aligned to 256 bytes, for the whole life of an engine; zeroed before the first
/// launch.
struct StepState {
    std::uint64_t position;  // of token 0 of the step
    std::int32_t token;      // of a step of one token: read instead of a list of ids
    std::uint32_t padding;
    /// Arrivals at grid barriers and of last blocks, 64 to a counter, each user's own business:
    /// whatever it leaves there must serve the next launch without being reset by the host.
    std::uint32_t counters[static_cast<std::uint32_t>(Counter::count)][64];
};

/// Where and how a kernel is launched. Positions are read from `state`, never from the host's
/// parameters, so that a graph captured once serves every token.
struct Launch {
    CUstream_st* stream = nullptr;
    StepState* state = nullptr;           // device memory
    std::uint32_t n_multiprocessors = 0;  // of the device
    /// The kernel may start while the one before it in the stream still runs, and itself waits for
    /// its results (programmatic dependent launch; ignored where the chip has none).
    bool overlaps_previous = false;
};

}  // namespace plimsoll::kernels::cuda
