#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/footprint.hpp"
#include "planner/result.hpp"

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
    double seconds = 0;  // of the step: what of these has to be waited for
};

/// One decoded token at `position`, uniform routing. Links are waited for in turn: at batch 1 a
/// layer's experts are known only when its router has run.
[[nodiscard]] StepCost decode_cost(const Footprint& footprint, const Division& division,
                                   std::uint64_t position);

/// One prefill chunk of `tokens` behind `position`. Links work side by side, double-buffered.
[[nodiscard]] StepCost prefill_cost(const Footprint& footprint, const Division& division,
                                    std::uint64_t position, std::uint64_t tokens);

/// Roofline prediction about `position`: tokens per second, load time, and the link that decode
/// waits for most. By the shares of a device's rates that were measured, where its file has them.
[[nodiscard]] Prediction predict(const Footprint& footprint, const Division& division,
                                 std::uint64_t position = kDecodePosition);

/// A chunk and a token of a plan that fits.
struct StepPair {
    std::uint64_t context_tokens = 0;  // position behind the chunk, where the token is decoded
    std::uint64_t chunk_tokens = 0;
};
struct StepPairCost {
    std::uint64_t prefill_tokens = 0;  // of the chunk
    StepCost prefill;
    StepCost decode;
};
/// What `predict` goes by, for a plan made before. A plan does not say how fast the file is read,
/// so none with experts there. Errors as those of `check_against`.
[[nodiscard]] Result<std::vector<StepPairCost>> costs_of_plan(const Plan& plan, const Model& model,
                                                              const Model* mtp,
                                                              std::span<const StepPair> steps);

}  // namespace plimsoll
