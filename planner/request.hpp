#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/result.hpp"

namespace plimsoll {

/// Who spoke last about a setting: the command line beats the profile, which beats the default.
enum class Source : std::uint8_t { by_default, yaml, cli };
[[nodiscard]] constexpr std::string_view source_name(Source source) {
    constexpr std::string_view kNames[] = {"default", "yaml", "cli"};
    return kNames[static_cast<std::size_t>(source)];
}

/// A value and who gave it. Setting from a weaker source than the one that spoke is ignored.
template <class T>
struct Setting {
    T value{};
    Source source = Source::by_default;

    void set(T new_value, Source from) {
        if (from < source) return;
        value = std::move(new_value);
        source = from;
    }
    bool operator==(const Setting&) const = default;
};

/// How much a feature is wanted. `require` fails the plan before it gives anything up.
enum class Wish : std::uint8_t { off, prefer, require };

/// A feature that shrinks: it is granted at least `minimum`, at most `target`.
struct Range {
    std::uint64_t target = 0;
    std::uint64_t minimum = 0;
    bool operator==(const Range&) const = default;
};

enum class Placement : std::uint8_t { automatic, device, host };

/// Steps of the ladder, in the words of profiles and plans. Given up first to last.
enum class Step : std::uint8_t {
    fp16_cache,         // tensor by tensor
    prefill_chunk,      // from its target down to 2,048 tokens
    embedding,          // to the host
    mtp,                // off
    experts,            // to the host, then NVMe, as many as needed
    prefill_chunk_min,  // below 2,048 tokens, to its minimum
    context,            // to its minimum
    output_head,        // streamed from the host
    dense_layers,       // streamed from the host, layer by layer
};
inline constexpr std::string_view kStepNames[] = {
    "fp16_cache",        "prefill_chunk", "embedding",   "mtp",         "experts",
    "prefill_chunk_min", "context",       "output_head", "dense_layers"};
inline constexpr std::size_t kStepCount = std::size(kStepNames);
[[nodiscard]] constexpr std::string_view step_name(Step step) {
    return kStepNames[static_cast<std::size_t>(step)];
}
[[nodiscard]] std::vector<Step> default_ladder();

enum class KvFormat : std::uint8_t { packed, f32 };
[[nodiscard]] constexpr std::string_view kv_format_name(KvFormat format) {
    return format == KvFormat::packed ? "packed" : "f32";
}

inline constexpr std::uint64_t kContextTokensDefault = 131'072;
inline constexpr std::uint64_t kContextTokensDefaultCpu = 8'192;
inline constexpr std::uint64_t kContextTokensMin = 4'096;
/// Contexts that the planner chooses are in steps of this many tokens: fine enough to waste little,
/// and a multiple of both compress ratios, so that every step adds whole rows.
inline constexpr std::uint64_t kContextStepTokens = 256;
inline constexpr std::uint64_t kChunkTokensDefault = 4'096;
inline constexpr std::uint64_t kChunkTokensBase = 2'048;  // what comes before experts
inline constexpr std::uint64_t kChunkTokensMin = 256;

/// Defaults of sampling that a profile may carry; planning ignores them.
struct SamplingDefaults {
    std::optional<double> temperature;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<std::uint64_t> top_k;
    std::optional<std::uint64_t> seed;
    bool operator==(const SamplingDefaults&) const = default;
};

/// What is asked of a plan: the profile and the command line, merged.
struct Request {
    // Which files; empty where not named.
    Setting<std::string> model;
    Setting<std::string> mtp_model;
    Setting<std::string> device;

    // Memory.
    Setting<std::optional<std::uint64_t>>
        vram_bytes;                        // replaces measured free memory, before overhead
    Setting<std::uint64_t> reserve_bytes;  // default 256 MiB
    Setting<std::optional<std::uint64_t>> host_bytes;  // replaces MemAvailable
    Setting<std::uint64_t> host_percent;  // of available host memory that may be planned
    Setting<std::string> nvme;            // "allow", "off", or a directory

    // Features.
    Setting<Range> context;
    Setting<Wish> context_wish;
    Setting<bool> context_is_max;  // target is the largest that fits
    Setting<Range> prefill_chunk;
    Setting<Wish> prefill_chunk_wish;
    Setting<Wish> mtp;
    Setting<std::uint64_t> drafts;
    Setting<Wish> fp16_cache;
    Setting<std::optional<std::uint64_t>> fp16_cache_max_bytes;
    Setting<Placement> embedding;
    Setting<Wish> embedding_wish;
    Setting<Placement> experts;
    Setting<Wish> experts_wish;
    Setting<std::optional<std::uint64_t>> experts_device_max_bytes;  // a cap is a cap
    Setting<bool> spill;
    Setting<bool> rounding;
    Setting<bool> precise;
    Setting<KvFormat> kv_format;
    Setting<std::uint64_t> sessions;
    Setting<bool> strict;
    Setting<std::vector<Step>> ladder;
    SamplingDefaults sampling;

    bool operator==(const Request&) const = default;
};

/// Every setting at its default, by_default.
[[nodiscard]] Request default_request();

/// Lays a profile over `request`, as Source::yaml. Closed schema; errors name `source` and the
/// line.
[[nodiscard]] Result<Request> apply_profile(Request request, const std::string& text,
                                            const std::string& source);

/// Applies one `--require F[=VALUE]`: the feature at VALUE, or at its target, becomes unbreakable.
[[nodiscard]] Status apply_require(Request& request, std::string_view text);

/// Contradictions within a request ("--kv-format packed needs --rounding on"); ok otherwise. `cpu`
/// tells whether the device is the CPU, which changes the default context.
[[nodiscard]] Status check_request(const Request& request);

}  // namespace plimsoll
