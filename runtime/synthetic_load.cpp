#include "runtime/synthetic_load.hpp"

#include "kernels/workers.hpp"
#include "planner/units.hpp"
#include "runtime/synthetic.hpp"

namespace plimsoll {

void fill_synthetic(std::span<const TensorLoad> loads, std::uint64_t seed, std::uint32_t n_threads,
                    const LoadProgress& progress) {
    // A thread's share at a time: long enough to be worth handing out.
    constexpr std::uint64_t kPieceBytes = 256 * kKiB;
    const kernels::Workers workers(n_threads);
    std::uint64_t total_bytes = 0;
    for (const TensorLoad& load : loads) total_bytes += load.size_bytes;
    std::uint64_t done_bytes = 0;
    for (const TensorLoad& load : loads) {
        const SyntheticTensor tensor(seed, *load.tensor, load.model->hyper.n_experts);
        workers.parallel_for(
            load.size_bytes, kPieceBytes, [&](std::uint64_t first, std::uint64_t last) {
                tensor.fill(load.offset_bytes + first, {load.destination + first, last - first});
            });
        done_bytes += load.size_bytes;
        progress(done_bytes, total_bytes);
    }
}

}  // namespace plimsoll
