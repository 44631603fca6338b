#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.hpp"
#include "offload/expert_slots.hpp"
#include "runtime/bindings.hpp"
#include "runtime/expert_counts.hpp"

namespace plimsoll {

/// Brings the experts that a layer needs to the device, a wave at a time: those that stay there,
/// and those on the host as far as the pool has slots. Ascending ids within and between waves, so
/// that sums have the same order and the same bits wherever experts are.
class ExpertSupply {
public:
    /// The bindings outlive this object.
    ExpertSupply(const Hyperparameters& hyper, const Bindings& bindings);

    /// The runs of the next wave for a layer: from `expert` on, which is moved past the last one
    /// taken, to n_experts at the end. `offsets` [n_experts + 1] are group_by_expert's. What the
    /// wave before held is given up. Empty only where no expert is active any more.
    [[nodiscard]] std::span<const kernels::ExpertRun> next_wave(const LayerExperts& layer,
                                                                const std::int32_t* offsets,
                                                                const kernels::Workers& workers,
                                                                std::uint32_t& expert);

    [[nodiscard]] const ExpertCounts& counts() const { return counts_; }

private:
    const std::byte* fetch(const LayerExperts& layer, std::uint32_t expert,
                           const kernels::Workers& workers, bool& is_hit);
    void count(const LayerExperts& layer, std::uint32_t n_assignments, bool is_hit);

    std::uint32_t n_experts_;
    std::vector<offload::ExpertSlots> pools_;
    std::vector<kernels::ExpertRun> runs_;  // room for all experts of a layer
    ExpertCounts counts_;
};

}  // namespace plimsoll
