#include "planner/pack_state.hpp"

#include <algorithm>

#include "planner/units.hpp"

namespace plimsoll {

PackState::PackState(const Timeline& timeline, std::uint64_t capacity_bytes)
    : timeline_(timeline),
      capacity_bytes_(capacity_bytes),
      floor_bytes_(timeline.alive.size(), 0),
      unplaced_bytes_(timeline.alive.size(), 0),
      spanning_count_(timeline.alive.size(), 0),
      lowest_bytes_(timeline.items.size(), 0),
      support_bytes_(timeline.items.size(), 0),
      offset_bytes_(timeline.items.size(), 0),
      placed_(timeline.items.size(), 0) {
    for (const Item& item : timeline.items) {
        for (std::uint32_t s = item.first_section; s < item.last_section; ++s) {
            unplaced_bytes_[s] += item.size_bytes;
            if (s > item.first_section) ++spanning_count_[s];
        }
    }
}

bool PackState::start() { return conclude({0, static_cast<std::uint32_t>(floor_bytes_.size())}); }

bool PackState::place(std::uint32_t placed_item) {
    const Item& item = timeline_.items[placed_item];
    const std::uint64_t end_bytes = lowest_bytes_[placed_item] + item.size_bytes;
    placed_[placed_item] = 1;
    offset_bytes_[placed_item] = lowest_bytes_[placed_item];
    placements_.push_back(placed_item);
    for (std::uint32_t s = item.first_section; s < item.last_section; ++s) {
        set(unplaced_bytes_[s], unplaced_bytes_[s] - item.size_bytes);
        set(floor_bytes_[s], end_bytes);
        if (s > item.first_section) --spanning_count_[s];
    }
    SectionRange touched{item.first_section, item.last_section};
    for (const std::uint32_t other : timeline_.neighbours[placed_item]) {
        if (placed(other)) continue;
        const std::uint64_t bytes = align_up(end_bytes, timeline_.items[other].alignment_bytes);
        if (bytes > support_bytes_[other]) set(support_bytes_[other], bytes);
        if (!raise_lowest(other, bytes, touched)) return false;
    }
    return conclude(touched);
}

bool PackState::give_up_floor(std::uint32_t section) {
    const std::uint64_t bytes = next_floor_bytes(section);
    if (bytes == kDone || bytes + unplaced_bytes_[section] > capacity_bytes_) return false;
    set(floor_bytes_[section], bytes);
    SectionRange touched{section, section + 1};
    for (const std::uint32_t item : timeline_.alive[section]) {
        if (placed(item)) continue;
        if (!raise_lowest(item, align_up(bytes, timeline_.items[item].alignment_bytes), touched))
            return false;
    }
    return conclude(touched);
}

void PackState::undo_to(Mark mark) {
    while (changes_.size() > mark.change_count) {
        *changes_.back().cell = changes_.back().previous;
        changes_.pop_back();
    }
    while (placements_.size() > mark.placement_count) {
        const Item& item = timeline_.items[placements_.back()];
        placed_[placements_.back()] = 0;
        for (std::uint32_t s = item.first_section + 1; s < item.last_section; ++s)
            ++spanning_count_[s];
        placements_.pop_back();
    }
}

bool PackState::obstructs_nothing(std::uint32_t item) const {
    const std::uint64_t end_bytes = lowest_bytes_[item] + timeline_.items[item].size_bytes;
    const auto& neighbours = timeline_.neighbours[item];
    return std::all_of(neighbours.begin(), neighbours.end(), [&](std::uint32_t other) {
        return placed(other) || lowest_bytes_[other] >= end_bytes;
    });
}

void PackState::SectionRange::cover(const Item& item) {
    first = std::min(first, item.first_section);
    last = std::max(last, item.last_section);
}

void PackState::set(std::uint64_t& cell, std::uint64_t value) {
    changes_.push_back({&cell, cell});
    cell = value;
}

bool PackState::raise_lowest(std::uint32_t item, std::uint64_t bytes, SectionRange& touched) {
    if (bytes <= lowest_bytes_[item]) return true;
    if (bytes + timeline_.items[item].size_bytes > capacity_bytes_) return false;
    set(lowest_bytes_[item], bytes);
    touched.cover(timeline_.items[item]);
    return true;
}

/// The lowest unplaced item of a section stands, in a settled packing, on something placed or on an
/// unplaced item of other sections. Neither may be at the floor that is being given up.
std::uint64_t PackState::next_floor_bytes(std::uint32_t section) const {
    std::uint64_t next_bytes = kDone;
    for (const std::uint32_t item : timeline_.alive[section]) {
        if (placed(item) || lowest_bytes_[item] >= next_bytes) continue;
        std::uint64_t bytes = lowest_elsewhere_bytes(item, section);
        if (support_bytes_[item] > floor_bytes_[section])
            bytes = std::min(bytes, support_bytes_[item]);
        next_bytes = std::min(next_bytes, std::max(bytes, lowest_bytes_[item]));
    }
    return next_bytes;
}

/// Lowest offset of an item that stands on an unplaced item not alive in `section`; kDone where
/// there is none.
std::uint64_t PackState::lowest_elsewhere_bytes(std::uint32_t item, std::uint32_t section) const {
    std::uint64_t bytes = kDone;
    for (const std::uint32_t other : timeline_.neighbours[item]) {
        const Item& below = timeline_.items[other];
        if (placed(other) || (below.first_section <= section && section < below.last_section))
            continue;
        bytes = std::min(bytes, align_up(lowest_bytes_[other] + below.size_bytes,
                                         timeline_.items[item].alignment_bytes));
    }
    return bytes;
}

bool PackState::conclude(SectionRange touched) {
    for (std::uint32_t s = touched.first; s < touched.last; ++s)
        if (!fits_section(s)) return false;
    for (std::uint32_t s = touched.first; s < touched.last; ++s) {
        for (const std::uint32_t item : timeline_.alive[s]) {
            const bool first_met = s == touched.first || s == timeline_.items[item].first_section;
            if (first_met && !placed(item) && leaves_hole_for(item)) return false;
        }
    }
    return true;
}

/// Stacks a section's unplaced items by rising lowest offset, each as low as that and the ones
/// before allow: no order ends lower (one machine with release times). Also lifts the floor to the
/// lowest of them, or to kDone where all are placed.
bool PackState::fits_section(std::uint32_t section) {
    heads_.clear();
    std::uint64_t lowest_bytes = kDone;
    std::uint64_t highest_bytes = 0;
    for (const std::uint32_t item : timeline_.alive[section]) {
        if (placed(item)) continue;
        heads_.push_back({lowest_bytes_[item], timeline_.items[item].size_bytes});
        lowest_bytes = std::min(lowest_bytes, lowest_bytes_[item]);
        highest_bytes = std::max(highest_bytes, lowest_bytes_[item]);
    }
    if (lowest_bytes > floor_bytes_[section]) set(floor_bytes_[section], lowest_bytes);
    // Roomy sections, which are most of them, need no sorting.
    if (highest_bytes + unplaced_bytes_[section] <= capacity_bytes_) return true;
    std::sort(heads_.begin(), heads_.end(),
              [](const Head& a, const Head& b) { return a.lowest_bytes < b.lowest_bytes; });
    std::uint64_t end_bytes = 0;
    for (const Head& head : heads_)
        end_bytes = std::max(end_bytes, head.lowest_bytes) + head.size_bytes;
    return end_bytes <= capacity_bytes_;
}

/// Whether everything still to come stays above a gap that holds the item: then it could be pushed
/// down later, and no settled packing is left on this path.
bool PackState::leaves_hole_for(std::uint32_t hole_item) const {
    const Item& item = timeline_.items[hole_item];
    const std::uint64_t top_bytes = support_bytes_[hole_item] + item.size_bytes;
    for (std::uint32_t s = item.first_section; s < item.last_section; ++s)
        if (floor_bytes_[s] < top_bytes) return false;
    return true;
}

}  // namespace plimsoll
