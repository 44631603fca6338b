#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/plan.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// The memory of a planned arena: one allocation of exactly its size, made once.
///
///     open    regions are taken, each once
///     sealed  nothing is: taking one is a bug and stops with the region's name
class ArenaMemory {
public:
    /// Takes the memory of `arena`, which outlives this object, and makes it resident. Error, kind
    /// no_fit, where the system refuses; the message names the arena and its size.
    [[nodiscard]] static Result<ArenaMemory> reserve(const Arena& arena);

    /// An arena in memory that somebody else allocated, of exactly the planned size: a GPU's, whose
    /// addresses the host only passes on, or host memory pinned for it.
    [[nodiscard]] static ArenaMemory over(const Arena& arena, std::shared_ptr<std::byte> memory);

    /// The bytes of one of the plan's regions, for the only time. `size_bytes` is what the caller
    /// will use of it; another than planned (but for the pad to kTensorAlignmentBytes) is a bug, as
    /// is a region that does not exist.
    [[nodiscard]] std::span<std::byte> take(RegionKind kind, std::int32_t layer,
                                            std::uint64_t size_bytes);

    /// For regions whose kind and layer are not unique (expert pools). `region` is one of the
    /// plan's.
    [[nodiscard]] std::span<std::byte> take(const Region& region);

    void seal() { sealed_ = true; }

    [[nodiscard]] const Arena& plan() const { return *plan_; }

    /// Bytes of the allocation that have memory behind them now, in whole pages. All of memory that
    /// somebody else allocated.
    [[nodiscard]] std::uint64_t resident_bytes() const;

private:
    ArenaMemory(const Arena& arena, std::shared_ptr<std::byte> base, bool is_mapped)
        : plan_(&arena),
          base_(std::move(base)),
          taken_(arena.regions.size(), false),
          is_mapped_(is_mapped) {}

    const Arena* plan_;
    std::shared_ptr<std::byte> base_;  // null for an arena of no bytes
    std::vector<bool> taken_;          // by region
    bool is_mapped_ = false;           // by this class: what is resident can be asked
    bool sealed_ = false;
};

}  // namespace plimsoll
