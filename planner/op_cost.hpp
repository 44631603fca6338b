#pragma once

#include <cstdint>

#include "planner/layout.hpp"
#include "planner/schedule.hpp"

namespace plimsoll {

/// The least that an op moves through its device's memory, and what it computes.
struct OpCost {
    double bytes = 0;  // weights once, workspace buffers, cached rows
    double flops = 0;  // a multiply-add is two
};

/// A step whose ops are priced. The schedule and the model outlive it.
struct PricedStep {
    const Schedule& schedule;
    const Model& model;
    KvFormat kv_format = KvFormat::packed;
    std::uint64_t planned_tokens = 1;  // T that the schedule's buffers are sized for
    std::uint64_t tokens = 1;          // T of the step
    std::uint64_t position = 0;        // of token 0
};

/// Cost of the op of a kind in a layer of the main model, or at either end (kNoLayer). Routing is
/// taken to be even. Zero for a kind that the step's schedule does not have there.
[[nodiscard]] OpCost op_cost(const PricedStep& step, OpKind kind, std::int32_t layer);

/// Bytes of cached rows, index rows and compressor states in use behind `position` tokens.
[[nodiscard]] std::uint64_t cache_bytes_in_use(const Model& model, const Grant& grant,
                                               std::uint64_t position);

}  // namespace plimsoll
