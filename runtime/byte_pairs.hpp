#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/token_id.hpp"

namespace plimsoll {

/// One merge: the pair it joins and the token it makes. Its rank is its index in the list.
struct Merge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId joined = 0;
};

/// The merges of a byte-pair encoding, looked up by pair.
class BytePairs {
public:
    BytePairs() = default;

    /// `merges` in order of rank; of equal pairs the first counts.
    explicit BytePairs(std::vector<Merge> merges);

    /// Joins the pair of lowest rank, the leftmost among equals, until no pair has one; appends
    /// what is left to `out`. `symbols` are the tokens of single bytes. O(n log n) in time, O(n) in
    /// memory, whatever the text.
    void merge(std::span<const TokenId> symbols, std::vector<TokenId>& out) const;

    /// Rank of the pair, or nothing where it is never joined.
    [[nodiscard]] std::optional<std::uint32_t> rank(TokenId left, TokenId right) const;

private:
    std::vector<Merge> merges_;
    std::vector<std::uint32_t>
        slots_;  // open addressing: rank + 1, 0 where free; a power of two, at most half full
};

}  // namespace plimsoll
