#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "runtime/engine.hpp"
#include "tests/runtime/model_files.hpp"

namespace plimsoll::test {

/// What a run of a case's models is asked; the rest of the request is at its default.
struct RunSetting {
    std::uint64_t chunk_tokens = 512;
    bool precise = false;
    bool rounding = true;
    KvFormat kv_format = KvFormat::packed;
    bool mtp = false;
    std::uint64_t context_tokens = 4'096;
    std::uint64_t device_bytes = 1ull << 30;
    std::uint64_t host_bytes = 0;  // may be planned; 0: no host tier
    bool on_gpu = false;           // planned for a GPU of `device_bytes`, and not for a host arena
    std::function<void(Request&)> change;
};

/// The plan for it. Throws where there is none, or one that breaks a
/// rule.
Plan plan_of_case(const CaseModels& models, const RunSetting& setting);

/// A plan and the engine that carries it out.
struct PlannedEngine {
    std::unique_ptr<const Plan> plan;
    Engine engine;

    PlannedEngine(const CaseModels& models, Plan made);
};

/// Logits of every position of both heads.
struct Logits {
    std::vector<float> main;   // [tokens, vocab]
    std::vector<float> draft;  // [tokens - 1, vocab], where the plan has a draft head

    bool operator==(const Logits&) const = default;
};

/// Feeds the tokens from the start, `chunk` at a time, the engine's chunk where 0.
Logits feed(PlannedEngine& planned, std::span<const TokenId> tokens, std::uint64_t chunk = 0);

/// Greedy continuation: the prompt chunk by chunk, then `count` tokens one by one.
std::vector<TokenId> generate(PlannedEngine& planned, std::span<const TokenId> prompt,
                              std::size_t count);

}  // namespace plimsoll::test
