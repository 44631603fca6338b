#include "planner/pack_timeline.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace plimsoll {
namespace {

/// The op that stands for each section: the last start before some block ends. Any other moment's
/// live set only lacks blocks that one of these has.
std::vector<std::uint32_t> section_ops(std::span<const Block> blocks) {
    std::vector<std::uint32_t> starts;
    std::vector<std::uint32_t> ends;
    for (const Block& block : blocks) {
        starts.push_back(block.lifetime.first_op);
        ends.push_back(block.lifetime.last_op);
    }
    std::sort(starts.begin(), starts.end());
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    std::sort(ends.begin(), ends.end());

    std::vector<std::uint32_t> ops;
    for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto next_end = std::upper_bound(ends.begin(), ends.end(), starts[i]);
        if (i + 1 == starts.size() || *next_end <= starts[i + 1]) ops.push_back(starts[i]);
    }
    return ops;
}

/// Blocks pushed down as far as they go stand on sums of sizes, so the sizes' common divisor
/// divides every offset, unless an alignment that does not divide it rounds some offset up.
std::uint64_t unit_bytes_of(std::span<const Item> items) {
    std::uint64_t unit_bytes = 0;
    for (const Item& item : items) unit_bytes = std::gcd(unit_bytes, item.size_bytes);
    const bool alignments_divide = std::all_of(items.begin(), items.end(), [&](const Item& item) {
        return unit_bytes % item.alignment_bytes == 0;
    });
    if (!alignments_divide)
        for (const Item& item : items) unit_bytes = std::gcd(unit_bytes, item.alignment_bytes);
    return std::max<std::uint64_t>(unit_bytes, 1);
}

}  // namespace

Timeline timeline_of(std::span<const Block> blocks) {
    Timeline timeline;
    const std::vector<std::uint32_t> ops = section_ops(blocks);
    const auto section_from = [&](std::uint32_t op) {
        return static_cast<std::uint32_t>(std::lower_bound(ops.begin(), ops.end(), op) -
                                          ops.begin());
    };
    for (std::uint32_t i = 0; i < blocks.size(); ++i) {
        if (blocks[i].size_bytes == 0) continue;
        timeline.items.push_back({.size_bytes = blocks[i].size_bytes,
                                  .alignment_bytes = blocks[i].alignment_bytes,
                                  .first_section = section_from(blocks[i].lifetime.first_op),
                                  .last_section = section_from(blocks[i].lifetime.last_op),
                                  .block = i});
    }
    const auto key = [](const Item& item) {
        return std::tuple(~item.size_bytes, item.first_section, item.last_section,
                          item.alignment_bytes, item.block);
    };
    std::sort(timeline.items.begin(), timeline.items.end(),
              [&](const Item& a, const Item& b) { return key(a) < key(b); });

    timeline.unit_bytes = unit_bytes_of(timeline.items);
    timeline.alive.resize(ops.size());
    timeline.neighbours.resize(timeline.items.size());
    for (std::uint32_t i = 0; i < timeline.items.size(); ++i) {
        const Item& item = timeline.items[i];
        for (std::uint32_t s = item.first_section; s < item.last_section; ++s)
            timeline.alive[s].push_back(i);
        for (std::uint32_t j = 0; j < timeline.items.size(); ++j) {
            const Item& other = timeline.items[j];
            if (j != i && item.first_section < other.last_section &&
                other.first_section < item.last_section)
                timeline.neighbours[i].push_back(j);
        }
    }
    return timeline;
}

}  // namespace plimsoll
