#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/request.hpp"
#include "planner/result.hpp"
#include "runtime/chat.hpp"
#include "runtime/sampler.hpp"

namespace CLI {
class App;
}

namespace plimsoll {

/// More threads than any machine has, and few enough that their stacks fit.
inline constexpr std::uint32_t kThreadsMax = 1024;

/// What `plimsoll run` is asked beyond planning. An empty optional was not given.
struct RunOptions {
    // The prompt; at most one of the first three.
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_path;
    std::optional<std::string> token_path;  // ids in place of text
    std::optional<std::string> system;
    std::optional<ThinkMode> think;
    bool raw = false;  // no chat template

    // Generation.
    std::optional<std::uint64_t> max_tokens;  // at least 1; not given is no limit
    bool greedy = false;
    SamplingDefaults sampling;  // what the command line says; a profile fills the rest
    std::vector<std::string> stops;

    // Execution.
    std::optional<std::uint32_t> threads;
    bool memory_report = false;
    bool verbose = false;

    // Checks: float32 rows, native order, no header.
    std::optional<std::string> logits_path;  // [fed positions, vocab]
    std::optional<std::string>
        mtp_logits_path;  // [fed positions - 1, vocab], row t from token t + 1

    [[nodiscard]] bool writes_logits() const {
        return logits_path.has_value() || mtp_logits_path.has_value();
    }
    /// A check feeds its tokens and ends, unless a number of tokens is asked for.
    [[nodiscard]] bool generates() const { return !writes_logits() || max_tokens.has_value(); }
};

/// Where the prompt comes from.
enum class PromptSource : std::uint8_t { argument, file, tokens, standard_input, chat };

/// Adds the options to a command. `options` must outlive the parsing.
void add_run_options(CLI::App& command, RunOptions& options);

/// The source of the prompt: as named, else a conversation on a terminal and all of the standard
/// input otherwise.
[[nodiscard]] PromptSource prompt_source(const RunOptions& options, bool input_is_terminal);

/// Options that contradict each other or would have no effect, each with what to do about it.
[[nodiscard]] Status check_run_options(const RunOptions& options, PromptSource source);

/// The command line over the profile's defaults over the model's own distribution. `fresh_seed` is
/// taken where neither names a seed.
[[nodiscard]] SamplingOptions sampling_options(const RunOptions& options,
                                               const SamplingDefaults& profile,
                                               std::uint64_t fresh_seed);

}  // namespace plimsoll
