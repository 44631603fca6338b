#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "planner/result.hpp"
#include "planner/schedule.hpp"
#include "runtime/expert_counts.hpp"
#include "runtime/loader.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll {

/// What an engine is made from. The plan and the models it was made from outlive the engine.
struct EngineSource {
    const Plan* plan =
        nullptr;  // of one device, without experts on NVMe; on a GPU all experts there
    const Model* model = nullptr;
    const Model* mtp = nullptr;   // null without a draft head
    std::uint32_t n_threads = 1;  // that compute and load, the caller's included
    LoadProgress progress;        // may be empty
    /// Takes lines about how it was loaded, for a person; may be empty.
    std::function<void(const std::string&)> note;
    /// Where set, weights are made and not read: the synthetic model of this seed.
    std::optional<std::uint64_t> synthetic_seed;
};

/// Takes the logits [vocab] f32 of one position; they are gone when it returns. An error ends the
/// feeding.
using LogitsSink = std::function<Status(std::uint64_t position, std::span<const float> logits)>;

/// How long one op of a step took.
struct OpTime {
    OpKind kind = OpKind::embed;
    std::int32_t layer = kNoLayer;  // of the model; kNoLayer at both ends
    double seconds = 0;
};

class EngineBackend;

/// A plan carried out: its arenas allocated, its weights loaded, its schedule run over the tokens
/// that are fed, on the CPU or a GPU as the plan's device says. One conversation at a time. After
/// `create` nothing allocates.
///
/// On the CPU the plan decides where everything is and changes no bit of any logit, nor does how
/// tokens are divided among calls. On a GPU the same holds of placement, and of the rest up to
/// rounding.
///
/// Calls that compute return an error, kind device_lost, where a GPU is gone: the engine is then of
/// no more use.
class Engine {
public:
    /// Errors: memory that the system refuses (no_fit), a model or a file that is not the planned
    /// one (bad_file) or cannot be read (io).
    [[nodiscard]] static Result<Engine> create(const EngineSource& source);
    ~Engine();
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) = delete;

    /// Forgets all tokens.
    Status reset();

    /// Tokens fed so far, which is the position of the next one.
    [[nodiscard]] std::uint64_t position() const;
    /// The most tokens of one call.
    [[nodiscard]] std::uint64_t chunk_tokens() const { return chunk_tokens_; }

    /// Runs the main model over tokens behind those fed before: 1 to chunk_tokens() of them, within
    /// the planned context, each below the vocabulary's size. Returns the logits [vocab] of the
    /// last one, valid until the next call.
    [[nodiscard]] Result<std::span<const float>> feed(std::span<const TokenId> tokens);

    /// The same, and the most likely next token: the lowest id among the largest logits. Only that
    /// leaves a GPU. Error, kind internal, where the largest logit is not finite.
    [[nodiscard]] Result<TokenId> feed_greedy(std::span<const TokenId> tokens);

    /// The same with the logits of every position. With `draft` the draft head runs too and gives
    /// its logits for every position whose next token is known, the last one of the call before
    /// included: position t pairs the streams at t with token t + 1. Its cache follows only where
    /// all calls since `reset` had a `draft`.
    [[nodiscard]] Status feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                                  const LogitsSink& draft = {});

    /// Like `feed`, with every op waited for and timed by itself: the sum is more than a step
    /// takes.
    [[nodiscard]] Result<std::vector<OpTime>> feed_timed(std::span<const TokenId> tokens);

    /// Since the engine was made.
    [[nodiscard]] const ExpertCounts& expert_counts() const;

    /// Planned beside measured memory of each tier, some lines of text.
    [[nodiscard]] std::string memory_report() const;

private:
    Engine(std::unique_ptr<EngineBackend> backend, std::uint64_t chunk_tokens);

    std::unique_ptr<EngineBackend> backend_;
    std::uint64_t chunk_tokens_;
};

}  // namespace plimsoll
