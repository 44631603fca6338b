#include "planner/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "planner/units.hpp"
#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kWishNames[] = {"off", "prefer", "require"};
constexpr std::string_view kPlacementNames[] = {"auto", "device", "host"};
constexpr std::string_view kKvFormatNames[] = {"packed", "f32"};
constexpr std::uint64_t kDraftsMax = 16;
constexpr std::uint64_t kSessionsMax = 1024;
constexpr std::uint64_t kTokensMax = 1ull << 32;

/// Reads `key` as one of `names` into a setting, where present.
template <class T>
void read_choice(YamlReader& reader, std::string_view key, Setting<T>& out,
                 std::span<const std::string_view> names) {
    constexpr std::size_t kAbsent = ~std::size_t{0};
    std::size_t index = kAbsent;
    reader.choice(key, index, names);
    if (index != kAbsent) out.set(static_cast<T>(index), Source::yaml);
}

void read_bool(YamlReader& reader, std::string_view key, Setting<bool>& out) {
    // Two reads with opposite defaults tell an absent key from one that repeats the default.
    bool first = false, second = true;
    reader.boolean(key, first).boolean(key, second);
    if (first == second) out.set(first, Source::yaml);
}

void read_count(YamlReader& reader, std::string_view key, Setting<std::uint64_t>& out,
                std::uint64_t min, std::uint64_t max) {
    constexpr std::uint64_t kAbsent = ~0ull;
    std::uint64_t value = kAbsent;
    reader.count(key, value, min, max);
    if (value != kAbsent) out.set(value, Source::yaml);
}

template <class T>
void read_size(YamlReader& reader, std::string_view key, Setting<T>& out) {
    constexpr std::uint64_t kAbsent = ~0ull;
    std::uint64_t value = kAbsent;
    reader.size(key, value);
    if (value != kAbsent) out.set(T(value), Source::yaml);
}

void read_text(YamlReader& reader, std::string_view key, Setting<std::string>& out) {
    std::string value;
    reader.text(key, value);
    if (!value.empty()) out.set(std::move(value), Source::yaml);
}

/// `key: {tokens, min, mode}`.
Status read_range(YamlReader& parent, std::string_view key, Setting<Range>& range,
                  Setting<Wish>& wish) {
    const YamlNode* node = parent.child(key);
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), std::string(key));
    Range value = range.value;
    reader.count("tokens", value.target, 1, kTokensMax).count("min", value.minimum, 1, kTokensMax);
    // A default minimum gives way to a small target; one that the profile states does not.
    if (reader.child("min") == nullptr) value.minimum = std::min(value.minimum, value.target);
    if (value.minimum > value.target)
        reader.fail(node->line,
                    fmt::format("{}: min {} is above tokens {}", key, value.minimum, value.target));
    range.set(value, Source::yaml);
    read_choice(reader, "mode", wish, std::span(kWishNames).subspan(0));
    if (wish.value == Wish::off) reader.fail(node->line, fmt::format("{} cannot be off", key));
    return reader.finish();
}

Status read_mtp(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("mtp");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "mtp");
    read_choice(reader, "mode", request.mtp, kWishNames);
    read_count(reader, "drafts", request.drafts, 1, kDraftsMax);
    return reader.finish();
}

Status read_fp16_cache(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("fp16_cache");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "fp16_cache");
    read_choice(reader, "mode", request.fp16_cache, kWishNames);
    read_size(reader, "max_bytes", request.fp16_cache_max_bytes);
    return reader.finish();
}

Status read_embedding(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("embedding");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "embedding");
    read_choice(reader, "tier", request.embedding, kPlacementNames);
    read_choice(reader, "mode", request.embedding_wish, kWishNames);
    if (request.embedding_wish.value == Wish::off)
        reader.fail(node->line, "embedding cannot be off");
    return reader.finish();
}

Status read_experts(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("experts");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "experts");
    read_choice(reader, "tier", request.experts, kPlacementNames);
    read_choice(reader, "mode", request.experts_wish, kWishNames);
    read_size(reader, "device_max_bytes", request.experts_device_max_bytes);
    if (request.experts_wish.value == Wish::off) reader.fail(node->line, "experts cannot be off");
    return reader.finish();
}

Status read_memory(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("memory");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "memory");
    read_size(reader, "vram_bytes", request.vram_bytes);
    read_size(reader, "reserve_bytes", request.reserve_bytes);
    read_size(reader, "host_bytes", request.host_bytes);
    read_count(reader, "host_percent", request.host_percent, 0, 100);
    read_text(reader, "nvme", request.nvme);
    read_bool(reader, "spill", request.spill);
    return reader.finish();
}

Status read_features(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("features");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "features");
    for (const Status& status :
         {read_range(reader, "context", request.context, request.context_wish),
          read_range(reader, "prefill_chunk", request.prefill_chunk, request.prefill_chunk_wish),
          read_mtp(reader, request), read_fp16_cache(reader, request),
          read_embedding(reader, request), read_experts(reader, request)})
        if (!status) return status;
    read_choice(reader, "kv_format", request.kv_format, kKvFormatNames);
    read_bool(reader, "rounding", request.rounding);
    read_bool(reader, "precise", request.precise);
    read_count(reader, "sessions", request.sessions, 1, kSessionsMax);
    read_bool(reader, "strict", request.strict);
    return reader.finish();
}

Status read_ladder(YamlReader& parent, Request& request) {
    const YamlNode* node = parent.child("ladder");
    if (node == nullptr) return ok_status();
    if (node->kind != YamlNode::Kind::sequence)
        return yaml_error(parent.source(), node->line, "ladder must be a list of steps");
    std::vector<Step> steps;
    for (const YamlNode& item : node->items) {
        const auto* const at = std::find(std::begin(kStepNames), std::end(kStepNames), item.scalar);
        if (at == std::end(kStepNames))
            return yaml_error(parent.source(), item.line,
                              fmt::format("unknown ladder step '{}' (known: {})", item.scalar,
                                          fmt::join(kStepNames, ", ")));
        const auto step = static_cast<Step>(at - std::begin(kStepNames));
        if (std::find(steps.begin(), steps.end(), step) != steps.end())
            return yaml_error(parent.source(), item.line,
                              fmt::format("ladder step '{}' is listed twice", item.scalar));
        steps.push_back(step);
    }
    if (steps.size() != kStepCount)
        return yaml_error(parent.source(), node->line,
                          fmt::format("ladder must list all {} steps: {}", kStepCount,
                                      fmt::join(kStepNames, ", ")));
    request.ladder.set(std::move(steps), Source::yaml);
    return ok_status();
}

Status read_sampling(YamlReader& parent, SamplingDefaults& sampling) {
    const YamlNode* node = parent.child("sampling");
    if (node == nullptr) return ok_status();
    YamlReader reader(*node, parent.source(), "sampling");
    const auto real = [&](std::string_view key, std::optional<double>& out, double max) {
        double value = -1;
        reader.real(key, value, 0, max);
        if (value >= 0) out = value;
    };
    const auto count = [&](std::string_view key, std::optional<std::uint64_t>& out) {
        Setting<std::uint64_t> value;
        read_count(reader, key, value, 0, ~0ull - 1);
        if (value.source == Source::yaml) out = value.value;
    };
    real("temperature", sampling.temperature, 100);
    real("top_p", sampling.top_p, 1);
    real("min_p", sampling.min_p, 1);
    count("top_k", sampling.top_k);
    count("seed", sampling.seed);
    return reader.finish();
}

Result<std::uint64_t> parse_tokens(std::string_view feature, std::string_view text) {
    std::uint64_t value = 0;
    const auto [at, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || at != text.data() + text.size() || value == 0 ||
        value > kTokensMax)
        return Error{ErrorKind::usage,
                     fmt::format("--require {}={}: must be a whole number from 1 to {}", feature,
                                 text, kTokensMax)};
    return value;
}

Status require_range(Setting<Range>& range, Setting<Wish>& wish, std::string_view feature,
                     std::string_view value) {
    Range wanted = range.value;
    if (!value.empty()) {
        const Result<std::uint64_t> tokens = parse_tokens(feature, value);
        if (!tokens) return tokens.error();
        wanted.target = *tokens;
    }
    wanted.minimum = wanted.target;
    range.set(wanted, Source::cli);
    wish.set(Wish::require, Source::cli);
    return ok_status();
}

Status require_placement(Setting<Placement>& placement, Setting<Wish>& wish,
                         std::string_view feature, std::string_view value) {
    Placement wanted =
        placement.value == Placement::automatic ? Placement::device : placement.value;
    if (value == "device")
        wanted = Placement::device;
    else if (value == "host")
        wanted = Placement::host;
    else if (!value.empty())
        return Error{ErrorKind::usage,
                     fmt::format("--require {}={}: must be device or host", feature, value)};
    placement.set(wanted, Source::cli);
    wish.set(Wish::require, Source::cli);
    return ok_status();
}

Status require_switch(Setting<Wish>& wish, std::string_view feature, std::string_view value,
                      std::string_view allowed) {
    if (!value.empty() && value != allowed)
        return Error{ErrorKind::usage,
                     fmt::format("--require {}={}: must be {}", feature, value, allowed)};
    wish.set(Wish::require, Source::cli);
    return ok_status();
}

}  // namespace

std::vector<Step> default_ladder() {
    std::vector<Step> steps;
    for (std::size_t index = 0; index < kStepCount; ++index)
        steps.push_back(static_cast<Step>(index));
    return steps;
}

Request default_request() {
    Request request;
    request.reserve_bytes.value = 256 * kMiB;
    request.host_percent.value = 80;
    request.nvme.value = "allow";
    request.context.value = {.target = kContextTokensDefault, .minimum = kContextTokensMin};
    request.context_wish.value = Wish::prefer;
    request.prefill_chunk.value = {.target = kChunkTokensDefault, .minimum = kChunkTokensMin};
    request.prefill_chunk_wish.value = Wish::prefer;
    request.mtp.value = Wish::prefer;
    request.drafts.value = 1;
    request.fp16_cache.value = Wish::prefer;
    request.embedding_wish.value = Wish::prefer;
    request.experts_wish.value = Wish::prefer;
    request.spill.value = true;
    request.rounding.value = true;
    request.sessions.value = 1;
    request.ladder.value = default_ladder();
    return request;
}

Result<Request> apply_profile(Request request, const std::string& text, const std::string& source) {
    const Result<YamlNode> root = parse_yaml(text, source);
    if (!root) return root.error();
    YamlReader reader(*root, source, "profile");
    std::string description;
    reader.text("description", description);
    read_text(reader, "model", request.model);
    read_text(reader, "mtp_model", request.mtp_model);
    read_text(reader, "device", request.device);
    for (const Status& status :
         {read_memory(reader, request), read_features(reader, request),
          read_ladder(reader, request), read_sampling(reader, request.sampling), reader.finish()})
        if (!status) return status.error();
    return request;
}

Status apply_require(Request& request, std::string_view text) {
    const std::size_t equals = text.find('=');
    const std::string_view feature = text.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
    if (equals != std::string_view::npos && value.empty())
        return Error{ErrorKind::usage, fmt::format("--require {}: nothing after '='", text)};
    if (feature == "context")
        return require_range(request.context, request.context_wish, feature, value);
    if (feature == "prefill_chunk")
        return require_range(request.prefill_chunk, request.prefill_chunk_wish, feature, value);
    if (feature == "mtp") return require_switch(request.mtp, feature, value, "on");
    if (feature == "fp16_cache") return require_switch(request.fp16_cache, feature, value, "full");
    if (feature == "embedding")
        return require_placement(request.embedding, request.embedding_wish, feature, value);
    if (feature == "experts")
        return require_placement(request.experts, request.experts_wish, feature, value);
    return Error{
        ErrorKind::usage,
        fmt::format("--require {}: unknown feature '{}' (known: context, prefill_chunk, mtp, "
                    "fp16_cache, embedding, experts)",
                    text, feature)};
}

Status check_request(const Request& request) {
    const auto refuse = [](std::string message) {
        return Status(Error{ErrorKind::usage, std::move(message)});
    };
    const bool packed_asked = request.kv_format.source != Source::by_default &&
                              request.kv_format.value == KvFormat::packed;
    if (packed_asked && !request.rounding.value)
        return refuse("kv_format packed needs cache rounding, and rounding is off");
    if (packed_asked && request.precise.value)
        return refuse("kv_format packed and precise (float32 rows) exclude each other");
    if (request.context.value.minimum > request.context.value.target)
        return refuse(fmt::format("context minimum {} is above its target {}",
                                  request.context.value.minimum, request.context.value.target));
    if (request.experts.value == Placement::device && request.experts_wish.value == Wish::require &&
        request.experts_device_max_bytes.value)
        return refuse("experts are required on the device and capped there at the same time");
    if (request.mtp.value == Wish::require && request.mtp_model.value.empty())
        return refuse("mtp is required but no draft head is named (--mtp FILE)");
    return ok_status();
}

}  // namespace plimsoll
