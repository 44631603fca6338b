#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/engine.hpp"

namespace plimsoll {

/// What carries out a plan behind an Engine: one for the CPU, one for a GPU. Called a few times a
/// step, never an op.
class EngineBackend {
public:
    virtual ~EngineBackend() = default;

    virtual Status reset() = 0;
    [[nodiscard]] virtual std::uint64_t position() const = 0;
    [[nodiscard]] virtual Result<std::span<const float>> feed(std::span<const TokenId> tokens) = 0;
    [[nodiscard]] virtual Result<TokenId> feed_greedy(std::span<const TokenId> tokens) = 0;
    [[nodiscard]] virtual Status feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                                          const LogitsSink& draft) = 0;
    [[nodiscard]] virtual Result<std::vector<OpTime>> feed_timed(
        std::span<const TokenId> tokens) = 0;
    [[nodiscard]] virtual const ExpertCounts& expert_counts() const = 0;
    [[nodiscard]] virtual std::string memory_report() const = 0;
};

/// Whether the models are those that the plan was made from. Error, kind bad_file.
[[nodiscard]] Status check_models(const EngineSource& source);

[[nodiscard]] Result<std::unique_ptr<EngineBackend>> make_cpu_backend(const EngineSource& source);
/// Error, kind usage, where the program is built without CUDA.
[[nodiscard]] Result<std::unique_ptr<EngineBackend>> make_gpu_backend(const EngineSource& source);

}  // namespace plimsoll
