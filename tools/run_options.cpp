#include "tools/run_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "runtime/stop.hpp"
#include "tools/whole_number.hpp"

namespace plimsoll {
namespace {

void add_prompt_options(CLI::App& command, RunOptions& options) {
    constexpr const char* kGroup = "Prompt";
    auto* prompt =
        command.add_option("-p,--prompt", options.prompt, "The prompt")->option_text("TEXT");
    auto* file = command
                     .add_option("-f,--file", options.prompt_path,
                                 "Read the prompt from a file; a newline at its end is dropped")
                     ->option_text("FILE")
                     ->excludes(prompt);
    auto* tokens =
        command
            .add_option("--tokens", options.token_path,
                        "Feed token ids: white space between them, or JSON with \"tokens\"")
            ->option_text("FILE")
            ->excludes(prompt)
            ->excludes(file);
    auto* system = command.add_option("--system", options.system, "The system text")
                       ->option_text("TEXT")
                       ->excludes(tokens);
    const auto think = [&](const char* name, ThinkMode mode, const char* text) {
        return command.add_flag_callback(
            name, [&options, mode] { options.think = mode; }, text);
    };
    auto* off = think("--no-think", ThinkMode::off, "Reply at once (default)");
    auto* high = think("--think", ThinkMode::high, "Reason before the reply")->excludes(off);
    auto* max = think("--think-max", ThinkMode::max,
                      "Reason as long as it takes; needs a context of 393,216 tokens")
                    ->excludes(off)
                    ->excludes(high);
    auto* raw = command.add_flag("--raw", options.raw,
                                 "Continue the prompt as it is, without the chat template");
    for (auto* option : {system, off, high, max, tokens}) raw->excludes(option);
    for (auto* option : {off, high, max}) tokens->excludes(option);
    for (auto* option : {prompt, file, tokens, system, off, high, max, raw}) option->group(kGroup);
}

void add_generation_options(CLI::App& command, RunOptions& options) {
    constexpr const char* kGroup = "Generation";
    SamplingDefaults& sampling = options.sampling;
    auto* max_tokens = command
                           .add_option("-n,--max-tokens", options.max_tokens,
                                       "Generate at most so many tokens (default: no limit)")
                           ->check(whole_number(1));
    auto* greedy = command.add_flag("--greedy", options.greedy, "Always the most likely token");
    auto* temperature =
        command.add_option("--temp", sampling.temperature, "Temperature (default 1; 0 is greedy)");
    auto* top_k = command
                      .add_option("--top-k", sampling.top_k,
                                  "Draw from the K most likely tokens (0: from all)")
                      ->check(whole_number(0));
    auto* top_p = command.add_option("--top-p", sampling.top_p,
                                     "Draw from the fewest tokens that reach this share");
    auto* min_p =
        command.add_option("--min-p", sampling.min_p,
                           "Drop tokens less likely than this share of the most likely one");
    auto* seed = command
                     .add_option("--seed", sampling.seed,
                                 "Seed of the generator (default: a new one each run)")
                     ->check(whole_number(0));
    auto* stop =
        command.add_option("--stop", options.stops, "End before this text appears (repeatable)")
            ->option_text("TEXT")
            ->type_size(1)
            ->allow_extra_args(false);
    for (auto* option : {temperature, top_k, top_p, min_p, seed}) greedy->excludes(option);
    for (auto* option : {max_tokens, greedy, temperature, top_k, top_p, min_p, seed, stop}) {
        option->group(kGroup);
    }
}

void add_execution_options(CLI::App& command, RunOptions& options) {
    command
        .add_option("--threads", options.threads, "Threads to compute with (default: all cores)")
        ->check(whole_number(1, kThreadsMax));
    command.add_flag("--memory-report", options.memory_report,
                     "Planned and measured memory of each tier, at the end");
    command.add_flag("-v,--verbose", options.verbose, "Print the whole plan before loading");
    command
        .add_option("--logits-out", options.logits_path,
                    "Write float32 logits [positions, vocab] of every fed position")
        ->option_text("FILE")
        ->group("Checks");
    command
        .add_option("--mtp-logits-out", options.mtp_logits_path,
                    "Write the draft head's logits [positions - 1, vocab]")
        ->option_text("FILE")
        ->group("Checks");
}

/// The first option of generation that was given, or null.
const char* generation_option(const RunOptions& options) {
    const SamplingDefaults& sampling = options.sampling;
    const struct {
        bool given;
        const char* name;
    } rows[] = {
        {options.greedy, "--greedy"},
        {sampling.temperature.has_value(), "--temp"},
        {sampling.top_k.has_value(), "--top-k"},
        {sampling.top_p.has_value(), "--top-p"},
        {sampling.min_p.has_value(), "--min-p"},
        {sampling.seed.has_value(), "--seed"},
        {!options.stops.empty(), "--stop"},
    };
    for (const auto& row : rows) {
        if (row.given) return row.name;
    }
    return nullptr;
}

Error usage(std::string message) { return {ErrorKind::usage, std::move(message)}; }

}  // namespace

void add_run_options(CLI::App& command, RunOptions& options) {
    add_prompt_options(command, options);
    add_generation_options(command, options);
    add_execution_options(command, options);
}

PromptSource prompt_source(const RunOptions& options, bool input_is_terminal) {
    if (options.prompt) return PromptSource::argument;
    if (options.prompt_path) return PromptSource::file;
    if (options.token_path) return PromptSource::tokens;
    return input_is_terminal ? PromptSource::chat : PromptSource::standard_input;
}

Status check_run_options(const RunOptions& options, PromptSource source) {
    if (source == PromptSource::chat && options.raw) {
        return usage("--raw needs a prompt: give one with -p or -f");
    }
    if (source == PromptSource::chat && options.writes_logits()) {
        return usage(
            "logits are written of a prompt, not of a conversation: give -p, -f or --tokens");
    }
    const char* generation = generation_option(options);
    if (!options.generates() && generation != nullptr) {
        return usage(
            fmt::format("{} has no effect: with {} nothing is generated unless -n is given",
                        generation, options.logits_path ? "--logits-out" : "--mtp-logits-out"));
    }
    if (options.logits_path && options.logits_path == options.mtp_logits_path) {
        return usage("--logits-out and --mtp-logits-out name the same file");
    }
    // What these refuse is better known before a model is loaded than after.
    if (const auto stops = StopStrings::create(options.stops); !stops) return stops.error();
    const auto sampler = Sampler::create(sampling_options(options, {}, 0), 1);
    return sampler ? ok_status() : Status(sampler.error());
}

SamplingOptions sampling_options(const RunOptions& options, const SamplingDefaults& profile,
                                 std::uint64_t fresh_seed) {
    const SamplingDefaults& given = options.sampling;
    const auto pick = [](const auto& a, const auto& b, auto fallback) {
        return a.value_or(b.value_or(fallback));
    };
    SamplingOptions out;
    out.seed = pick(given.seed, profile.seed, fresh_seed);
    out.temperature =
        options.greedy ? 0 : static_cast<float>(pick(given.temperature, profile.temperature, 1.0));
    if (out.temperature == 0) return out;
    // Beyond the vocabulary every number keeps all tokens.
    const std::uint64_t top_k = pick(given.top_k, profile.top_k, std::uint64_t{0});
    out.top_k = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(top_k, std::numeric_limits<std::uint32_t>::max()));
    out.top_p = static_cast<float>(pick(given.top_p, profile.top_p, 1.0));
    out.min_p = static_cast<float>(pick(given.min_p, profile.min_p, 0.0));
    return out;
}

}  // namespace plimsoll
