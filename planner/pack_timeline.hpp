#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/pack.hpp"

namespace plimsoll {

/// A buffer as the packers see it: the bytes it owns are its size rounded up to its alignment.
struct Block {
    std::uint64_t size_bytes = 0;       // a multiple of alignment_bytes
    std::uint64_t alignment_bytes = 1;  // power of two
    Lifetime lifetime;

    [[nodiscard]] bool alive_with(const Block& other) const {
        return lifetime.first_op < other.lifetime.last_op &&
               other.lifetime.first_op < lifetime.last_op;
    }
};

/// A block of at least one byte, its lifetime counted in sections.
struct Item {
    std::uint64_t size_bytes = 0;
    std::uint64_t alignment_bytes = 1;
    std::uint32_t first_section = 0;
    std::uint32_t last_section = 0;  // half-open
    std::uint32_t block = 0;         // index among the blocks

    /// Whether the two can change places in any packing.
    [[nodiscard]] bool same_shape(const Item& other) const {
        return size_bytes == other.size_bytes && alignment_bytes == other.alignment_bytes &&
               first_section == other.first_section && last_section == other.last_section;
    }
};

/// Time reduced to what matters to packing. A section is a moment whose set of live blocks is
/// contained in no other moment's; two blocks are alive together exactly where they share a
/// section.
///
///     op        0  1  2  3  4  5          section   0  1
///     a         |-----------|             a         |-----|
///     b         |-----|            ->     b         |--|
///     c               |--------|          c            |--|
///
/// Items are sorted by what they are, not by how the blocks were listed.
struct Timeline {
    std::vector<Item> items;
    std::vector<std::vector<std::uint32_t>> alive;       // by section: items, ascending
    std::vector<std::vector<std::uint32_t>> neighbours;  // by item: sharing a section
    std::uint64_t unit_bytes = 1;  // every offset worth trying is a multiple of this
};

[[nodiscard]] Timeline timeline_of(std::span<const Block> blocks);

}  // namespace plimsoll
