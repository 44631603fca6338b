#pragma once

#include "planner/footprint.hpp"

namespace plimsoll {

/// Position at which decode is predicted: the indexer is at work, and most conversations are about
/// there.
inline constexpr std::uint64_t kDecodePosition = 8'192;

/// What one step moves over each link and computes (planner/op_cost.hpp), and how long that takes
/// at the links' rates.
struct StepCost {
    double memory_bytes = 0;  // through the memory that computes, all devices
    double link_bytes = 0;    // host to device: streamed experts and dense weights
    double nvme_bytes = 0;
    double flops = 0;
    double memory_seconds = 0;
    double link_seconds = 0;
    double nvme_seconds = 0;
    double compute_seconds = 0;
};

/// One decoded token at `position`, uniform routing. Links are waited for in turn: at batch 1 a
/// layer's experts are known only when its router has run.
[[nodiscard]] StepCost decode_cost(const Footprint& footprint, const Division& division,
                                   std::uint64_t position);

/// One prefill chunk of the granted size behind `position`. Links work side by side,
/// double-buffered.
[[nodiscard]] StepCost prefill_cost(const Footprint& footprint, const Division& division,
                                    std::uint64_t position);

/// Roofline prediction about `position`: tokens per second, load time, and the link that decode
/// waits for most. By the shares of a device's rates that were measured, where its file has them.
[[nodiscard]] Prediction predict(const Footprint& footprint, const Division& division,
                                 std::uint64_t position = kDecodePosition);

}  // namespace plimsoll
