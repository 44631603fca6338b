#include "planner/pack.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/check.hpp"
#include "planner/pack_exact.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

std::vector<Block> blocks_of(std::span<const Buffer> buffers) {
    std::vector<Block> blocks;
    blocks.reserve(buffers.size());
    std::uint64_t total_bytes = 0;
    for (const Buffer& buffer : buffers) {
        PLIMSOLL_CHECK(is_power_of_two(buffer.alignment_bytes), buffer.name);
        PLIMSOLL_CHECK(buffer.lifetime.first_op < buffer.lifetime.last_op, buffer.name);
        PLIMSOLL_CHECK(buffer.size_bytes <= kNoLimit / 4, buffer.name);
        blocks.push_back({align_up(buffer.size_bytes, buffer.alignment_bytes),
                          buffer.alignment_bytes, buffer.lifetime});
        // Offsets never pass the sum of sizes and alignments, so this keeps all later sums in
        // range.
        total_bytes += blocks.back().size_bytes + buffer.alignment_bytes;
        PLIMSOLL_CHECK(total_bytes <= kNoLimit / 4, buffer.name);
    }
    return blocks;
}

/// Largest sum of sizes alive at one op. The sum only grows where a lifetime starts, so those ops
/// suffice.
std::uint64_t live_bytes_max(std::span<const Block> blocks) {
    std::uint64_t max_bytes = 0;
    for (const Block& at : blocks) {
        std::uint64_t live_bytes = 0;
        for (const Block& block : blocks) {
            if (block.lifetime.first_op <= at.lifetime.first_op &&
                at.lifetime.first_op < block.lifetime.last_op)
                live_bytes += block.size_bytes;
        }
        max_bytes = std::max(max_bytes, live_bytes);
    }
    return max_bytes;
}

/// What an order ranks by, largest first.
struct BlockRank {
    std::uint64_t size_bytes = 0;
    std::uint64_t lifetime_ops = 0;
    std::uint64_t area_byte_ops = 0;   // size x lifetime, saturated
    std::uint64_t conflict_bytes = 0;  // sizes of everything alive together with it
    std::uint64_t live_bytes =
        0;  // largest live sum at an op where some block starts, in its lifetime
    std::uint64_t ops_before_end = 0;  // grows towards the start of the schedule
};

struct GreedyOrder {
    std::uint64_t BlockRank::*first;
    std::uint64_t BlockRank::*second;
};

// The first order decides most of our own schedules; the others matter on crowded ones.
constexpr std::array kOrders = {
    GreedyOrder{&BlockRank::size_bytes, &BlockRank::lifetime_ops},
    GreedyOrder{&BlockRank::lifetime_ops, &BlockRank::size_bytes},
    GreedyOrder{&BlockRank::area_byte_ops, &BlockRank::size_bytes},
    GreedyOrder{&BlockRank::live_bytes, &BlockRank::area_byte_ops},
    GreedyOrder{&BlockRank::conflict_bytes, &BlockRank::size_bytes},
    GreedyOrder{&BlockRank::ops_before_end, &BlockRank::size_bytes},
};

std::vector<BlockRank> ranks_of(std::span<const Block> blocks) {
    std::vector<BlockRank> ranks(blocks.size());
    std::vector<std::uint64_t> live_at_start_bytes(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const Lifetime& own = blocks[i].lifetime;
        for (const Block& other : blocks) {
            if (!blocks[i].alive_with(other)) continue;
            ranks[i].conflict_bytes += other.size_bytes;
            if (other.lifetime.first_op <= own.first_op) live_at_start_bytes[i] += other.size_bytes;
        }
        ranks[i].size_bytes = blocks[i].size_bytes;
        ranks[i].lifetime_ops = own.last_op - own.first_op;
        ranks[i].area_byte_ops =
            checked_mul(ranks[i].size_bytes, ranks[i].lifetime_ops).value_or(kNoLimit);
        ranks[i].ops_before_end = std::numeric_limits<std::uint32_t>::max() - own.first_op;
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        const Lifetime& own = blocks[i].lifetime;
        for (std::size_t j = 0; j < blocks.size(); ++j) {
            const std::uint32_t start_op = blocks[j].lifetime.first_op;
            if (own.first_op <= start_op && start_op < own.last_op)
                ranks[i].live_bytes = std::max(ranks[i].live_bytes, live_at_start_bytes[j]);
        }
    }
    return ranks;
}

/// Block indices in an order. Ties fall back on everything a block is, so that the result depends
/// on the set of blocks and not on the order in which they were listed.
std::vector<std::uint32_t> sorted_indices(std::span<const Block> blocks,
                                          std::span<const BlockRank> ranks,
                                          const GreedyOrder& order) {
    std::vector<std::uint32_t> indices(blocks.size());
    std::iota(indices.begin(), indices.end(), 0u);
    const auto key = [&](std::uint32_t i) {
        return std::tuple(~(ranks[i].*order.first), ~(ranks[i].*order.second), ~ranks[i].size_bytes,
                          blocks[i].lifetime, blocks[i].alignment_bytes, i);
    };
    std::sort(indices.begin(), indices.end(),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    return indices;
}

enum class Fit { lowest_gap, tightest_gap };

struct Placed {
    std::uint64_t offset_bytes = 0;
    std::uint64_t end_bytes = 0;
    std::uint32_t block = 0;
};

/// Where `block` goes among `placed` (by rising offset): a gap between blocks alive with it, or
/// above them all.
std::uint64_t offset_among(std::span<const Block> blocks, std::span<const Placed> placed,
                           const Block& block, Fit fit) {
    std::uint64_t below_bytes = 0;  // end of everything met so far that is alive with the block
    std::uint64_t best_offset_bytes = kNoLimit;
    std::uint64_t best_spare_bytes = kNoLimit;
    for (const Placed& other : placed) {
        if (!blocks[other.block].alive_with(block)) continue;
        const std::uint64_t offset_bytes = align_up(below_bytes, block.alignment_bytes);
        if (offset_bytes + block.size_bytes <= other.offset_bytes) {
            const std::uint64_t spare_bytes = other.offset_bytes - below_bytes - block.size_bytes;
            if (spare_bytes < best_spare_bytes) {
                best_offset_bytes = offset_bytes;
                best_spare_bytes = spare_bytes;
            }
            if (fit == Fit::lowest_gap) return offset_bytes;
        }
        below_bytes = std::max(below_bytes, other.end_bytes);
    }
    if (best_offset_bytes != kNoLimit) return best_offset_bytes;
    return align_up(below_bytes, block.alignment_bytes);
}

/// Places blocks one by one. Writes offsets and returns the top, or gives up (nothing) once it
/// reaches `limit_bytes`.
std::optional<std::uint64_t> place_greedily(std::span<const Block> blocks,
                                            std::span<const std::uint32_t> order, Fit fit,
                                            std::uint64_t limit_bytes,
                                            std::vector<std::uint64_t>& offset_bytes) {
    std::vector<Placed> placed;
    placed.reserve(blocks.size());
    std::uint64_t top_bytes = 0;
    for (const std::uint32_t i : order) {
        const std::uint64_t offset = offset_among(blocks, placed, blocks[i], fit);
        const std::uint64_t end = offset + blocks[i].size_bytes;
        if (end >= limit_bytes) return std::nullopt;
        top_bytes = std::max(top_bytes, end);
        offset_bytes[i] = offset;
        const auto above = std::upper_bound(
            placed.begin(), placed.end(), offset,
            [](std::uint64_t bytes, const Placed& other) { return bytes < other.offset_bytes; });
        placed.insert(above, {offset, end, i});
    }
    return top_bytes;
}

/// The best of every order and fit; stops at the first within `target_bytes`.
void pack_greedily(std::span<const Block> blocks, std::uint64_t target_bytes, Packing& packing) {
    const std::vector<BlockRank> ranks = ranks_of(blocks);
    std::vector<std::uint64_t> offset_bytes(blocks.size());
    packing.packed_bytes = kNoLimit;
    for (const GreedyOrder& order : kOrders) {
        const std::vector<std::uint32_t> indices = sorted_indices(blocks, ranks, order);
        for (const Fit fit : {Fit::tightest_gap, Fit::lowest_gap}) {
            const std::optional<std::uint64_t> top_bytes =
                place_greedily(blocks, indices, fit, packing.packed_bytes, offset_bytes);
            if (!top_bytes) continue;
            packing.packed_bytes = *top_bytes;
            packing.offset_bytes = offset_bytes;
            if (packing.packed_bytes <= target_bytes) return;
        }
    }
}

/// Takes over the packing if one of at most `target_bytes` is found. Returns what the search said.
ExactOutcome try_target(const Timeline& timeline, std::uint64_t target_bytes,
                        std::uint64_t node_count_max, Packing& packing) {
    const ExactResult exact = pack_within(timeline, target_bytes, node_count_max);
    packing.node_count += exact.node_count;
    if (exact.outcome == ExactOutcome::refuted)
        packing.proven_min_bytes =
            target_bytes - target_bytes % timeline.unit_bytes + timeline.unit_bytes;
    if (exact.outcome != ExactOutcome::found) return exact.outcome;
    packing.packed_bytes = 0;
    packing.offset_bytes.assign(packing.offset_bytes.size(), 0);
    for (std::size_t i = 0; i < timeline.items.size(); ++i) {
        const Item& item = timeline.items[i];
        packing.offset_bytes[item.block] = exact.offset_bytes[i];
        packing.packed_bytes =
            std::max(packing.packed_bytes, exact.offset_bytes[i] + item.size_bytes);
    }
    return exact.outcome;
}

/// Narrows [proven minimum, packed] until both meet or the nodes are used up. The bound itself is
/// tried first, since it is nearly always within reach; then the middle of what is left above the
/// largest size that was too hard.
void pack_smallest(const Timeline& timeline, std::uint64_t node_count_max, Packing& packing) {
    std::uint64_t target_bytes = packing.proven_min_bytes;
    std::uint64_t too_hard_bytes = 0;
    while (packing.node_count < node_count_max) {
        const std::uint64_t nodes_left = node_count_max - packing.node_count;
        if (try_target(timeline, target_bytes, (nodes_left + 1) / 2, packing) ==
            ExactOutcome::gave_up)
            too_hard_bytes = target_bytes;
        const std::uint64_t from_bytes =
            std::max(packing.proven_min_bytes, too_hard_bytes + timeline.unit_bytes);
        if (from_bytes >= packing.packed_bytes) return;
        const std::uint64_t span_units = (packing.packed_bytes - from_bytes) / timeline.unit_bytes;
        target_bytes = from_bytes + (span_units - 1) / 2 * timeline.unit_bytes;
    }
}

}  // namespace

Packing pack(std::span<const Buffer> buffers, const PackLimits& limits) {
    const std::vector<Block> blocks = blocks_of(buffers);
    Packing packing;
    packing.lower_bound_bytes = live_bytes_max(blocks);
    packing.proven_min_bytes = packing.lower_bound_bytes;
    const std::uint64_t enough_bytes = std::max(packing.lower_bound_bytes, limits.capacity_bytes);
    pack_greedily(blocks, enough_bytes, packing);
    const bool impossible =
        limits.capacity_bytes != 0 && limits.capacity_bytes < packing.lower_bound_bytes;
    if (packing.packed_bytes > enough_bytes && !impossible && limits.node_count_max != 0) {
        const Timeline timeline = timeline_of(blocks);
        if (limits.capacity_bytes != 0)
            (void)try_target(timeline, limits.capacity_bytes, limits.node_count_max, packing);
        else
            pack_smallest(timeline, limits.node_count_max, packing);
    }
    packing.optimal = packing.packed_bytes == packing.proven_min_bytes;
    return packing;
}

}  // namespace plimsoll
