#pragma once

#include <cstdint>
#include <source_location>

#include "tests/emulation/vector_types.hpp"

/// Runs the threads of a kernel as fibers of one CPU thread. Blocks run one after the other, or in
/// turn where they wait for one another; a thread runs until it meets others. Nothing depends on
/// timing: a test that fails fails again.
///
/// What goes wrong on a GPU without a word stops the program here, naming the launcher:
/// - threads that wait for each other for ever (a barrier that some of a block's threads skip),
/// - lanes of a warp that meet at different operations or with different masks,
/// - a write behind dynamic shared memory, a misaligned asynchronous copy.
/// Shared memory starts each block as NaN, and so does the destination of an asynchronous copy
/// until it is waited for.
namespace plimsoll::emulation {

inline constexpr std::uint32_t kWarp = 32;
inline constexpr std::uint32_t kMultiprocessors = 6;  // no power of two, as on real chips
inline constexpr std::uint32_t kSharedBytesMax = 227 * 1024;
inline constexpr std::uint32_t kThreadsResidentMax = 2048;  // per multiprocessor

struct Grid {
    dim3 grid;
    dim3 block;
    std::uint32_t shared_bytes = 0;
    bool all_blocks_resident = false;
    std::source_location launcher;
};

/// Calls body(arguments) as every thread of the grid.
void run_grid(const Grid& grid, void (*body)(const void*), const void* arguments);

// Called by a running thread.

/// What an operation of a warp does, once: lanes[i] is what lane i gave, null where it takes no
/// part.
using WarpOperation = void (*)(void* const (&lanes)[kWarp]);
/// Waits for the lanes in `mask` that have not ended; the last to come runs the operation.
void meet_warp(std::uint32_t mask, WarpOperation operation, void* lane_data);

struct Votes {
    int any = 0;
    int all = 1;
    int count = 0;
};
/// Waits for all threads of the block that have not ended.
Votes meet_block(int predicate = 0);
/// Waits at barrier 1 to 15 for `n_threads` of the block.
void meet_some(std::uint32_t barrier, std::uint32_t n_threads);
/// Lets other threads run, here and in other blocks.
void yield_thread();

[[nodiscard]] std::uint32_t lane_index();
[[nodiscard]] unsigned char* dynamic_shared();

/// Takes effect in wait_for_copies of this thread; until then the destination is NaN.
void copy_async(void* to_shared, const void* from, std::uint32_t size_bytes, bool valid);
void commit_copies();
void wait_for_copies(std::uint32_t n_pending);

}  // namespace plimsoll::emulation

/// Of the running thread.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
