#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace plimsoll::offload {

/// A fixed number of slots that many items of one size take turns in: the item used longest ago
/// leaves first. Knows items by number and slots by address, and what is in them not at all.
///
/// A slot that was handed out is held until `release_all`, so that everything used together stays
/// in place together; when all slots are held, the caller works with what it has and goes on.
/// Nothing allocates after construction, and the number of slots never grows.
class ExpertSlots {
public:
    /// `pool` is cut into slots of `slot_bytes`; items are [0, n_items). The pool outlives this
    /// object.
    ExpertSlots(std::span<std::byte> pool, std::uint64_t slot_bytes, std::uint32_t n_items);

    struct Place {
        std::byte* slot = nullptr;
        bool is_hit = false;  // the item is there already; otherwise the caller puts it there
    };

    /// A slot for the item, held from now on. None where the item is absent and every slot is held.
    [[nodiscard]] std::optional<Place> acquire(std::uint32_t item);

    /// Ends the hold on every slot; the items stay until others need the room.
    void release_all();

    [[nodiscard]] std::uint32_t slot_count() const {
        return static_cast<std::uint32_t>(slots_.size());
    }

private:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    /// Slots form a ring by time of use; `kNone` ends it on both sides.
    struct Slot {
        std::uint32_t item = kNone;
        std::uint32_t older = kNone;
        std::uint32_t newer = kNone;
        std::uint64_t held_in = 0;  // the hold it was handed out in; held while that is the current
    };

    void unlink(std::uint32_t slot);
    void link_as_newest(std::uint32_t slot);

    std::span<std::byte> pool_;
    std::uint64_t slot_bytes_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> slot_of_item_;
    std::uint32_t oldest_ = kNone;
    std::uint32_t newest_ = kNone;
    std::uint64_t hold_ = 1;
};

}  // namespace plimsoll::offload
