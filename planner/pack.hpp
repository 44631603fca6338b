#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace plimsoll {

/// Half-open range of ops [first_op, last_op) during which a buffer's contents are needed.
struct Lifetime {
    std::uint32_t first_op = 0;
    std::uint32_t last_op = 0;

    auto operator<=>(const Lifetime&) const = default;
};

struct Buffer {
    std::string name;                     // as in the schedule: "attn_out"
    std::uint64_t size_bytes = 0;         // exact; rounding is pack's business
    std::uint64_t alignment_bytes = 256;  // power of two; 256 is what a device allocation gives
    Lifetime lifetime;                    // never empty

    bool operator==(const Buffer&) const = default;
};

/// Where each buffer starts, and how good that is. A buffer owns its size rounded up to its
/// alignment, in every figure below.
struct Packing {
    std::vector<std::uint64_t> offset_bytes;  // by buffer, in the order given
    std::uint64_t packed_bytes = 0;           // the region that holds them all
    std::uint64_t lower_bound_bytes = 0;      // largest sum alive at one op
    std::uint64_t proven_min_bytes = 0;       // none is smaller: the bound, or more if refuted
    bool optimal = false;                     // packed == proven minimum
    std::uint64_t node_count = 0;             // of the exact search; 0 where greedy was enough

    bool operator==(const Packing&) const = default;
};

struct PackLimits {
    /// Work limit of the exact search, in visited nodes: deterministic, unlike a clock. 0: greedy
    /// only. A node costs about a microsecond at 60 buffers and tens of them at 400.
    std::uint64_t node_count_max = 2'000;
    /// Stop as soon as a packing of at most this size is found; 0: as small as can be. That none
    /// exists is proven where `proven_min_bytes` of the result is larger than this.
    std::uint64_t capacity_bytes = 0;
};

/// Gives every buffer an offset so that no two share a byte while both are live.
///
///     bytes 12 |------|-------------|
///              |  q   | expert_out  |
///            4 |------|------|------|
///              |  attn_out   |      |
///            0 |======|======|======|
///        op    0      1      2      3
///
/// Greedy in several orders first; then, while the result is above the lower bound, a bounded exact
/// search. Pure; equal input gives equal output, and how the buffers are listed does not change
/// `packed_bytes`. Whether it fits is the caller's question. Sizes must add up to less than 2^62.
[[nodiscard]] Packing pack(std::span<const Buffer> buffers, const PackLimits& limits = {});

/// The first rule a packing breaks, in words, or nothing. Naive, O(n^2), shares no code with
/// `pack`.
[[nodiscard]] std::optional<std::string> validate_packing(std::span<const Buffer> buffers,
                                                          const Packing& packing);

}  // namespace plimsoll
