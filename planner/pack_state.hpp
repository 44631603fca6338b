#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "planner/pack_timeline.hpp"

namespace plimsoll {

/// A partly built packing: a skyline over the sections that only rises, and what follows from it.
/// Every change is recorded and can be taken back.
///
///     bytes    |         |#####|
///     upward   |   ....  |#####|      # placed    . given up: holds no unplaced item any more
///              |###....##|#####|
///     section   0  1  2  3  4  5
///
/// Only *settled* packings are looked for: none of their items could be pushed further down. Any
/// packing can be settled without growing, so none is missed.
class PackState {
public:
    /// Floor of a section all of whose items are placed.
    static constexpr std::uint64_t kDone = std::numeric_limits<std::uint64_t>::max();

    /// `timeline` outlives the state.
    PackState(const Timeline& timeline, std::uint64_t capacity_bytes);
    PackState(const PackState&) = delete;  // the record of changes points into the state
    PackState& operator=(const PackState&) = delete;

    /// Draws the first conclusions; false where the capacity is plainly too small.
    [[nodiscard]] bool start();

    /// Puts an item on the floor it rests on (`rests_on(item, its section's floor)`). False: a dead
    /// end.
    [[nodiscard]] bool place(std::uint32_t item);

    /// Decides that no item of `section` stands on its floor, and raises the floor to the next
    /// level at which one could. False: a dead end.
    [[nodiscard]] bool give_up_floor(std::uint32_t section);

    struct Mark {
        std::size_t change_count = 0;
        std::size_t placement_count = 0;
    };
    [[nodiscard]] Mark mark() const { return {changes_.size(), placements_.size()}; }
    void undo_to(Mark mark);

    [[nodiscard]] bool placed(std::uint32_t item) const { return placed_[item] != 0; }
    [[nodiscard]] std::uint64_t floor_bytes(std::uint32_t section) const {
        return floor_bytes_[section];
    }
    /// Bytes of an unfinished section that may still be wasted.
    [[nodiscard]] std::uint64_t slack_bytes(std::uint32_t section) const {
        return capacity_bytes_ - floor_bytes_[section] - unplaced_bytes_[section];
    }
    /// Whether an unplaced item spans the border between `section` and the one before it.
    [[nodiscard]] bool joined_to_previous(std::uint32_t section) const {
        return spanning_count_[section] != 0;
    }
    /// Whether the item is unplaced, can stand at `floor`, and has something placed right beneath
    /// it there.
    [[nodiscard]] bool rests_on(std::uint32_t item, std::uint64_t floor) const {
        return !placed(item) && lowest_bytes_[item] == floor && support_bytes_[item] == floor;
    }
    /// Whether placing the item at its lowest offset leaves every unplaced item where it could be
    /// before.
    [[nodiscard]] bool obstructs_nothing(std::uint32_t item) const;

    [[nodiscard]] std::uint64_t lowest_bytes(std::uint32_t item) const {
        return lowest_bytes_[item];
    }
    [[nodiscard]] std::uint64_t support_bytes(std::uint32_t item) const {
        return support_bytes_[item];
    }
    /// By item; meaningful for those placed.
    [[nodiscard]] const std::vector<std::uint64_t>& offset_bytes() const { return offset_bytes_; }

private:
    struct SectionRange {
        std::uint32_t first = 0;
        std::uint32_t last = 0;  // half-open

        void cover(const Item& item);
    };
    struct Change {
        std::uint64_t* cell = nullptr;
        std::uint64_t previous = 0;
    };
    struct Head {
        std::uint64_t lowest_bytes = 0;
        std::uint64_t size_bytes = 0;
    };

    void set(std::uint64_t& cell, std::uint64_t value);
    [[nodiscard]] bool raise_lowest(std::uint32_t item, std::uint64_t bytes, SectionRange& touched);
    [[nodiscard]] std::uint64_t next_floor_bytes(std::uint32_t section) const;
    [[nodiscard]] std::uint64_t lowest_elsewhere_bytes(std::uint32_t item,
                                                       std::uint32_t section) const;
    [[nodiscard]] bool conclude(SectionRange touched);
    [[nodiscard]] bool fits_section(std::uint32_t section);
    [[nodiscard]] bool leaves_hole_for(std::uint32_t item) const;

    const Timeline& timeline_;
    std::uint64_t capacity_bytes_;
    std::vector<std::uint64_t> floor_bytes_;     // by section: no unplaced item goes below
    std::vector<std::uint64_t> unplaced_bytes_;  // by section: sum of sizes
    std::vector<std::uint32_t> spanning_count_;  // by section: unplaced ones across its left border
    std::vector<std::uint64_t> lowest_bytes_;    // by item: highest floor under it, aligned
    std::vector<std::uint64_t> support_bytes_;   // by item: highest placed top under it, aligned
    std::vector<std::uint64_t> offset_bytes_;    // by item
    std::vector<char> placed_;                   // by item; not vector<bool>, which is slower here
    std::vector<Change> changes_;
    std::vector<std::uint32_t> placements_;
    std::vector<Head> heads_;  // reused by fits_section
};

}  // namespace plimsoll
