#pragma once

#include <cstdint>

#include "planner/layout.hpp"
#include "planner/schedule.hpp"

namespace plimsoll {

/// The least that an op moves through its device's memory, and what it computes.
struct OpCost {
    double bytes = 0;         // weights once, activations, cached rows
    double dense_bytes = 0;   // of them weights of no routed expert
    double expert_bytes = 0;  // of them weights of routed experts, the routing taken to be even
    double flops = 0;         // a multiply-add is two

    OpCost& operator+=(const OpCost& other);
};

/// A step whose ops are priced. The schedule and the model outlive it.
struct PricedStep {
    const Schedule& schedule;
    const Model& model;  // the main one: a draft head's weights are priced by nobody
    KvFormat kv_format = KvFormat::packed;
    std::uint64_t planned_tokens = 1;  // T that the schedule's buffers are sized for
    std::uint64_t tokens = 1;          // T of the step
    std::uint64_t position = 0;        // of token 0
};

/// Cost of the op of a kind in a layer of the main model, or at either end (kNoLayer). Zero for a
/// kind that the step's schedule does not have there.
[[nodiscard]] OpCost op_cost(const PricedStep& step, OpKind kind, std::int32_t layer);

/// Sums over the ops that the step runs in a layer, before the layers, and behind them. A step of
/// one token runs the decode ops where the schedule has them.
[[nodiscard]] OpCost layer_cost(const PricedStep& step, std::int32_t layer);
[[nodiscard]] OpCost embed_cost(const PricedStep& step);
[[nodiscard]] OpCost head_cost(const PricedStep& step);

/// Bytes of cached rows, index rows and compressor states in use behind `position` tokens.
[[nodiscard]] std::uint64_t cache_bytes_in_use(const Model& model, const Grant& grant,
                                               std::uint64_t position);

}  // namespace plimsoll
