#include "runtime/byte_pairs.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "planner/check.hpp"

namespace plimsoll {
namespace {

/// Multiplicative hashing; the constant is 2^64 divided by the golden ratio (Knuth, TAOCP vol.
/// 3, 6.4).
std::uint64_t pair_hash(TokenId left, TokenId right) {
    const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                     static_cast<std::uint32_t>(right);
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15ull;
    return mixed ^ mixed >> 32;
}

constexpr std::uint32_t kNone = 0xFFFFFFFF;

/// A symbol of the piece, in a doubly linked list that keeps its order. A joined right half gets id
/// -1.
struct Symbol {
    TokenId id = 0;
    std::uint32_t before = kNone;
    std::uint32_t after = kNone;
};

/// A pair that could be joined when it was found; stale once either half has changed.
struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t left = 0;  // index of the left half
    TokenId left_id = 0, right_id = 0;
};

/// Heap order: lowest rank on top, then leftmost.
bool worse(const Candidate& a, const Candidate& b) {
    return std::pair(a.rank, a.left) > std::pair(b.rank, b.left);
}

}  // namespace

BytePairs::BytePairs(std::vector<Merge> merges) : merges_(std::move(merges)) {
    slots_.assign(std::bit_ceil(merges_.size() * 2 + 2), 0);
    const std::size_t mask = slots_.size() - 1;
    for (std::uint32_t i = 0; i < merges_.size(); ++i) {
        const Merge& added = merges_[i];
        if (rank(added.left, added.right)) continue;
        std::size_t slot = pair_hash(added.left, added.right) & mask;
        while (slots_[slot] != 0) slot = (slot + 1) & mask;
        slots_[slot] = i + 1;
    }
}

std::optional<std::uint32_t> BytePairs::rank(TokenId left, TokenId right) const {
    if (slots_.empty()) return std::nullopt;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = pair_hash(left, right) & mask; slots_[slot] != 0;
         slot = (slot + 1) & mask) {
        const Merge& found = merges_[slots_[slot] - 1];
        if (found.left == left && found.right == right) return slots_[slot] - 1;
    }
    return std::nullopt;
}

void BytePairs::merge(std::span<const TokenId> symbols, std::vector<TokenId>& out) const {
    PLIMSOLL_CHECK(symbols.size() < kNone, "a piece of 4 GiB");
    const auto count = static_cast<std::uint32_t>(symbols.size());
    std::vector<Symbol> list(count);
    std::vector<Candidate> heap;
    const auto consider = [&](std::uint32_t left) {
        const std::uint32_t right = list[left].after;
        if (right == kNone) return false;
        const auto found = rank(list[left].id, list[right].id);
        if (found) heap.push_back({*found, left, list[left].id, list[right].id});
        return found.has_value();
    };
    for (std::uint32_t i = 0; i < count; ++i) {
        list[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
    }
    for (std::uint32_t i = 0; i < count; ++i) consider(i);
    std::make_heap(heap.begin(), heap.end(), worse);

    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), worse);
        const Candidate best = heap.back();
        heap.pop_back();
        Symbol& left = list[best.left];
        if (left.id != best.left_id || left.after == kNone) continue;
        Symbol& right = list[left.after];
        if (right.id != best.right_id) continue;

        left.id = merges_[best.rank].joined;
        right.id = -1;
        left.after = right.after;
        if (left.after != kNone) list[left.after].before = best.left;
        if (consider(best.left)) std::push_heap(heap.begin(), heap.end(), worse);
        if (left.before != kNone && consider(left.before)) {
            std::push_heap(heap.begin(), heap.end(), worse);
        }
    }
    for (std::uint32_t i = 0; i != kNone && i < count; i = list[i].after) out.push_back(list[i].id);
}

}  // namespace plimsoll
