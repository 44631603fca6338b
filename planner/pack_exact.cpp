#include "planner/pack_exact.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/pack_state.hpp"

// How the search works. A *valley* is a run of sections at one floor between higher ones.
// Everything unplaced in a valley stands at its floor or above, so exactly one of these holds for
// any of its sections: one of the items that rest on the floor stands there, or the floor stays
// bare in that section and rises. Those are a node's branches. Valleys do not disturb one another,
// so any may be taken next, and parts of the timeline that no unplaced item connects are solved one
// after the other.
//
// The idea of searching only settled packings from the floor up, of checking sections against what
// must still go in, and of splitting a timeline that falls apart is MiniMalloc's (Moffitt, ASPLOS
// 2023), which branches over all items by rising offset instead. Branching in one valley keeps the
// alternatives few, and remembering failed states makes restarts with another strategy cheap.

namespace plimsoll {
namespace {

/// Which section of all valleys to decide next.
enum class SectionChoice { tightest, fewest_items, lowest };

/// Which item to try on its floor first.
enum class ItemOrder { longest, most_crowded };

struct Strategy {
    SectionChoice section;
    ItemOrder order;
};

// Taken in turn with a doubling limit. On the eleven MiniMalloc problems each of them wins at least
// one.
constexpr std::array kStrategies = {
    Strategy{SectionChoice::tightest, ItemOrder::longest},
    Strategy{SectionChoice::fewest_items, ItemOrder::longest},
    Strategy{SectionChoice::lowest, ItemOrder::longest},
    Strategy{SectionChoice::tightest, ItemOrder::most_crowded},
};

/// Identifies the part of a state that decides whether it can be completed: the unplaced items of a
/// range of sections with their lowest and support offsets. A false match would need two such sets
/// to agree in 64 bits or more (about 2^-64 per look-up), so a refutation may rely on it.
struct StateKey {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    bool operator==(const StateKey&) const = default;
};

/// Spreads every input bit over the whole word: xor-shift and odd multiply, twice.
constexpr std::uint64_t mix(std::uint64_t value) {
    constexpr std::uint64_t kOdd = 0xd6e8feb86659fd93u;
    value = (value ^ (value >> 32)) * kOdd;
    value = (value ^ (value >> 32)) * kOdd;
    return value ^ (value >> 32);
}

/// States known to lead nowhere; a newer one takes the place of an older one in its slot.
class FailedStates {
public:
    explicit FailedStates(std::uint64_t node_count_max)
        : slots_(std::bit_ceil(std::clamp<std::uint64_t>(node_count_max, 64, kSlotCountMax))) {}

    [[nodiscard]] bool contains(const StateKey& key) const { return slots_[slot(key)] == key; }
    void insert(const StateKey& key) { slots_[slot(key)] = key; }

private:
    // 4 MiB. With a quarter of it the hardest MiniMalloc problem (E) takes 17 % more nodes, with
    // four times as much as many nodes as now (2 vCPU AMD EPYC, 2026-12-01).
    static constexpr std::uint64_t kSlotCountMax = 1u << 18;

    [[nodiscard]] std::size_t slot(const StateKey& key) const {
        return static_cast<std::size_t>(key.low) & (slots_.size() - 1);
    }

    std::vector<StateKey>
        slots_;  // the zero key is no state's: every state hashes at least one item
};

class Search {
public:
    Search(const Timeline& timeline, std::uint64_t capacity_bytes, Strategy strategy,
           std::span<const std::uint32_t> rank, FailedStates& failed, std::uint64_t node_count_max)
        : timeline_(timeline),
          strategy_(strategy),
          rank_(rank),
          failed_(failed),
          node_count_max_(node_count_max),
          state_(timeline, capacity_bytes) {}

    ExactResult run() {
        ExactResult result;
        const bool found =
            state_.start() && solve(0, static_cast<std::uint32_t>(timeline_.alive.size()));
        result.node_count = node_count_;
        result.outcome = found      ? ExactOutcome::found
                         : gave_up_ ? ExactOutcome::gave_up
                                    : ExactOutcome::refuted;
        if (found) result.offset_bytes = state_.offset_bytes();
        return result;
    }

private:
    /// Places everything left in sections [first, last), part by part; what is placed stays on
    /// success. On failure the caller takes it back.
    bool solve(std::uint32_t first, std::uint32_t last) {
        for (std::uint32_t s = first; s < last;) {
            std::uint32_t end = s + 1;
            while (end < last && state_.joined_to_previous(end)) ++end;
            if (state_.floor_bytes(s) != PackState::kDone && !solve_part(s, end)) return false;
            s = end;
        }
        return true;
    }

    bool solve_part(std::uint32_t first, std::uint32_t last) {
        const StateKey key = state_key(first, last);
        if (failed_.contains(key)) return false;
        if (node_count_ >= node_count_max_) gave_up_ = true;
        if (gave_up_) return false;
        ++node_count_;
        if (branch(first, last)) return true;
        if (!gave_up_) failed_.insert(key);
        return false;
    }

    bool branch(std::uint32_t first, std::uint32_t last) {
        const std::uint32_t section = choose_section(first, last);
        const PackState::Mark mark = state_.mark();
        for (const std::uint32_t item : items_to_try(section)) {
            const bool no_alternative = state_.obstructs_nothing(item);
            if (state_.place(item) && solve(first, last)) return true;
            state_.undo_to(mark);
            // An item in nobody's way could be pushed down to here in any packing that has it
            // elsewhere.
            if (no_alternative || gave_up_) return false;
        }
        if (state_.give_up_floor(section) && solve(first, last)) return true;
        state_.undo_to(mark);
        return false;
    }

    std::uint32_t choose_section(std::uint32_t first, std::uint32_t last) const {
        using Key = std::pair<std::uint64_t, std::uint64_t>;
        std::uint32_t best = first;
        Key best_key{PackState::kDone, PackState::kDone};
        for (std::uint32_t s = first; s < last;) {
            const std::uint64_t floor_bytes = state_.floor_bytes(s);
            std::uint32_t end = s + 1;
            while (end < last && state_.floor_bytes(end) == floor_bytes) ++end;
            const bool is_valley = (s == first || state_.floor_bytes(s - 1) > floor_bytes) &&
                                   (end == last || state_.floor_bytes(end) > floor_bytes);
            for (; s < end; ++s) {
                if (!is_valley || floor_bytes == PackState::kDone) continue;
                const std::uint64_t slack_bytes = state_.slack_bytes(s);
                const std::uint64_t item_count = resting_count(s);
                const Key key =
                    strategy_.section == SectionChoice::tightest ? Key{slack_bytes, item_count}
                    : strategy_.section == SectionChoice::lowest ? Key{floor_bytes, slack_bytes}
                                                                 : Key{item_count, slack_bytes};
                if (key < best_key) {
                    best_key = key;
                    best = s;
                }
            }
        }
        return best;
    }

    std::uint64_t resting_count(std::uint32_t section) const {
        const auto& alive = timeline_.alive[section];
        return static_cast<std::uint64_t>(
            std::count_if(alive.begin(), alive.end(), [&](std::uint32_t item) {
                return state_.rests_on(item, state_.floor_bytes(section));
            }));
    }

    /// Items that rest on the section's floor, in the strategy's order, one of each shape.
    std::vector<std::uint32_t> items_to_try(std::uint32_t section) const {
        std::vector<std::uint32_t> items;
        for (const std::uint32_t item : timeline_.alive[section]) {
            if (!state_.rests_on(item, state_.floor_bytes(section))) continue;
            const bool has_twin = std::any_of(items.begin(), items.end(), [&](std::uint32_t other) {
                return timeline_.items[other].same_shape(timeline_.items[item]);
            });
            if (!has_twin) items.push_back(item);
        }
        std::sort(items.begin(), items.end(),
                  [&](std::uint32_t a, std::uint32_t b) { return rank_[a] < rank_[b]; });
        return items;
    }

    StateKey state_key(std::uint32_t first, std::uint32_t last) const {
        StateKey key;
        for (std::uint32_t s = first; s < last; ++s) {
            for (const std::uint32_t item : timeline_.alive[s]) {
                if (state_.placed(item) || timeline_.items[item].first_section != s) continue;
                const std::uint64_t hash = mix(mix(mix(item + 1) + state_.lowest_bytes(item)) +
                                               state_.support_bytes(item));
                key.low += hash;
                key.high += mix(hash + 1);
            }
        }
        return key;
    }

    const Timeline& timeline_;
    Strategy strategy_;
    std::span<const std::uint32_t> rank_;  // by item; the lowest is tried first
    FailedStates& failed_;
    std::uint64_t node_count_max_;
    std::uint64_t node_count_ = 0;
    bool gave_up_ = false;
    PackState state_;
};

/// By item: its place in an order.
std::vector<std::uint32_t> rank_of(const Timeline& timeline, ItemOrder order) {
    std::vector<std::uint64_t> section_bytes(timeline.alive.size(), 0);
    for (std::size_t s = 0; s < timeline.alive.size(); ++s)
        for (const std::uint32_t item : timeline.alive[s])
            section_bytes[s] += timeline.items[item].size_bytes;
    const auto weight = [&](std::uint32_t i) {
        const Item& item = timeline.items[i];
        if (order == ItemOrder::longest)
            return std::uint64_t{item.last_section - item.first_section};
        return *std::max_element(section_bytes.begin() + item.first_section,
                                 section_bytes.begin() + item.last_section);
    };
    std::vector<std::uint32_t> items(timeline.items.size());
    std::iota(items.begin(), items.end(), 0u);
    std::sort(items.begin(), items.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::tuple(~weight(a), a) < std::tuple(~weight(b), b);
    });
    std::vector<std::uint32_t> rank(items.size());
    for (std::uint32_t place = 0; place < items.size(); ++place) rank[items[place]] = place;
    return rank;
}

}  // namespace

ExactResult pack_within(const Timeline& timeline, std::uint64_t capacity_bytes,
                        std::uint64_t node_count_max) {
    capacity_bytes -= capacity_bytes % timeline.unit_bytes;
    const std::array ranks = {rank_of(timeline, ItemOrder::longest),
                              rank_of(timeline, ItemOrder::most_crowded)};
    FailedStates failed(node_count_max);
    ExactResult result;
    std::uint64_t slice_node_count = 2 * timeline.items.size();
    while (true) {
        for (const Strategy& strategy : kStrategies) {
            const std::uint64_t visited = result.node_count;
            Search search(timeline, capacity_bytes, strategy,
                          ranks[static_cast<std::size_t>(strategy.order)], failed,
                          std::min(slice_node_count, node_count_max - visited));
            result = search.run();
            result.node_count += visited;
            if (result.outcome != ExactOutcome::gave_up || result.node_count >= node_count_max)
                return result;
        }
        slice_node_count *= 2;
    }
}

}  // namespace plimsoll
