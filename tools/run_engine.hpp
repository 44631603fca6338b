#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/result.hpp"
#include "runtime/engine.hpp"
#include "tools/run_launch.hpp"
#include "tools/run_options.hpp"
#include "tools/run_summary.hpp"
#include "tools/run_turn.hpp"
#include "tools/terminal.hpp"

namespace plimsoll {

struct LoadOptions {
    std::uint32_t threads = 1;
    std::optional<std::uint64_t> synthetic_seed;  // weights are made of it, and no file is read
};

/// Allocates and loads, with progress on `terminal`. `launch` outlives the engine, its plan is one
/// that `check_runnable` took. Errors: memory that is not there, a file that cannot be read.
[[nodiscard]] Result<Engine> load_engine(const Launch& launch, const LoadOptions& options,
                                         std::FILE* progress_stream, const Terminal& terminal);

/// An engine as turns see it; it outlives what is returned.
[[nodiscard]] TokenModel token_model_of(Engine& engine);

/// A plan carried out: its arenas, the weights in them, and the engine that computes there.
class LoadedModel {
public:
    /// As `load_engine`; `launch` outlives the model.
    [[nodiscard]] static Result<LoadedModel> load(const Launch& launch, std::uint32_t threads,
                                                  std::FILE* progress_stream,
                                                  const Terminal& terminal);
    ~LoadedModel();
    LoadedModel(LoadedModel&&) noexcept;

    /// The model as turns see it; this object outlives it.
    [[nodiscard]] TokenModel token_model();

    /// Feeds `tokens` from the start and writes the logits of every position to the files named.
    [[nodiscard]] Status write_logits(std::span<const TokenId> tokens, const RunOptions& options);

    /// Since the last call; nothing where all experts stay on the device.
    [[nodiscard]] std::optional<ExpertTraffic> expert_traffic();

    /// Planned beside measured memory of each tier.
    [[nodiscard]] std::string memory_report() const;

private:
    struct Parts;

    explicit LoadedModel(std::unique_ptr<Parts> parts);

    std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll
