#include "offload/expert_slots.hpp"

namespace plimsoll::offload {

ExpertSlots::ExpertSlots(std::span<std::byte> pool, std::uint64_t slot_bytes, std::uint32_t n_items)
    : pool_(pool),
      slot_bytes_(slot_bytes),
      slots_(slot_bytes == 0 ? 0 : pool.size() / slot_bytes),
      slot_of_item_(n_items, kNone) {
    for (std::uint32_t slot = slot_count(); slot-- > 0;) link_as_newest(slot);
}

std::optional<ExpertSlots::Place> ExpertSlots::acquire(std::uint32_t item) {
    std::uint32_t at = slot_of_item_[item];
    const bool is_hit = at != kNone;
    if (!is_hit) {
        // Held slots are the newest, so the oldest is held only where all are.
        if (oldest_ == kNone || slots_[oldest_].held_in == hold_) return std::nullopt;
        at = oldest_;
        if (slots_[at].item != kNone) slot_of_item_[slots_[at].item] = kNone;
        slots_[at].item = item;
        slot_of_item_[item] = at;
    }
    unlink(at);
    link_as_newest(at);
    slots_[at].held_in = hold_;
    return Place{pool_.data() + at * slot_bytes_, is_hit};
}

void ExpertSlots::release_all() { ++hold_; }

void ExpertSlots::unlink(std::uint32_t slot) {
    const Slot& entry = slots_[slot];
    (entry.older != kNone ? slots_[entry.older].newer : oldest_) = entry.newer;
    (entry.newer != kNone ? slots_[entry.newer].older : newest_) = entry.older;
}

void ExpertSlots::link_as_newest(std::uint32_t slot) {
    slots_[slot].older = newest_;
    slots_[slot].newer = kNone;
    (newest_ != kNone ? slots_[newest_].newer : oldest_) = slot;
    newest_ = slot;
}

}  // namespace plimsoll::offload
