#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/result.hpp"
#include "tools/run_launch.hpp"
#include "tools/run_options.hpp"
#include "tools/run_summary.hpp"
#include "tools/run_turn.hpp"
#include "tools/terminal.hpp"

namespace plimsoll {

/// A plan carried out: its arenas, the weights in them, and the engine that computes there.
class LoadedModel {
public:
    /// Allocates and loads, with progress on `terminal`. `launch` outlives the model, its plan is
    /// one that `check_runnable` took. Errors: memory that is not there, a file that cannot be
    /// read.
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
