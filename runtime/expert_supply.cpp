#include "runtime/expert_supply.hpp"

#include <fmt/format.h>

#include <cstring>

#include "planner/check.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// A thread's share of a copy: longer than it costs to hand out.
constexpr std::uint64_t kCopyBytes = 256 * kKiB;

kernels::WeightMatrix at(kernels::WeightMatrix shape, const std::byte* data) {
    shape.data = data;
    return shape;
}

}  // namespace

ExpertSupply::ExpertSupply(const Hyperparameters& hyper, const Bindings& bindings)
    : n_experts_(hyper.n_experts), runs_(hyper.n_experts) {
    for (const ExpertPool& pool : bindings.pools)
        pools_.emplace_back(pool.bytes, pool.slot_bytes, hyper.n_layers * hyper.n_experts);
}

/// Null where the expert is on the host and every slot is in use.
const std::byte* ExpertSupply::fetch(const LayerExperts& layer, std::uint32_t expert,
                                     const kernels::Workers& workers, bool& is_hit) {
    is_hit = true;
    if (expert < layer.host_first) return layer.device_slots.data() + expert * layer.slot_bytes;
    const auto place = pools_[layer.pool].acquire(layer.first_item + expert);
    if (!place) return nullptr;
    is_hit = place->is_hit;
    if (is_hit) return place->slot;
    const std::byte* from =
        layer.host_slots.data() + (expert - layer.host_first) * layer.slot_bytes;
    workers.parallel_for(layer.slot_bytes, kCopyBytes,
                         [&](std::uint64_t first, std::uint64_t last) {
                             std::memcpy(place->slot + first, from + first, last - first);
                         });
    return place->slot;
}

/// Of a call's tokens that need a missing expert, the first waits and the others find it there.
void ExpertSupply::count(const LayerExperts& layer, std::uint32_t n_assignments, bool is_hit) {
    if (layer.is_draft_head) return;
    counts_.hits += is_hit ? n_assignments : n_assignments - 1;
    counts_.misses += is_hit ? 0 : 1;
    counts_.copied_bytes += is_hit ? 0 : layer.slot_bytes;
}

std::span<const kernels::ExpertRun> ExpertSupply::next_wave(const LayerExperts& layer,
                                                            const std::int32_t* offsets,
                                                            const kernels::Workers& workers,
                                                            std::uint32_t& expert) {
    for (offload::ExpertSlots& pool : pools_) pool.release_all();
    std::size_t n_runs = 0;
    for (; expert < n_experts_; ++expert) {
        const auto first = static_cast<std::uint32_t>(offsets[expert]);
        const auto last = static_cast<std::uint32_t>(offsets[expert + 1]);
        if (first == last) continue;
        bool is_hit = false;
        const std::byte* slot = fetch(layer, expert, workers, is_hit);
        if (slot == nullptr) {
            PLIMSOLL_CHECK(n_runs > 0,
                           fmt::format("no slot for expert {} and none in use", expert));
            break;
        }
        count(layer, last - first, is_hit);
        runs_[n_runs++] = {at(layer.gate, slot), at(layer.up, slot + layer.up_offset_bytes),
                           at(layer.down, slot + layer.down_offset_bytes), first, last};
    }
    return {runs_.data(), n_runs};
}

}  // namespace plimsoll
