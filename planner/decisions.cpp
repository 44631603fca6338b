#include "planner/decisions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", text); }
std::string boolean(bool value) { return value ? "true" : "false"; }

std::uint64_t class_bytes(const Plan& plan, RegionClass cls) {
    std::uint64_t sum = 0;
    for (const DevicePlan& device : plan.devices) sum += device.arena.bytes_of(cls);
    return sum;
}

/// Where the devices' bytes went, for a feature that had to yield: "3.55 GiB went to MTP and 0.45
/// to context".
std::string spent_on(const Plan& plan) {
    std::vector<std::string> parts;
    const std::uint64_t mtp =
        class_bytes(plan, RegionClass::mtp_weights) + class_bytes(plan, RegionClass::mtp_cache);
    if (mtp != 0) parts.push_back(fmt::format("{} went to MTP", format_bytes(mtp)));
    parts.push_back(fmt::format("{} {}to context", format_bytes(class_bytes(plan, RegionClass::kv)),
                                mtp != 0 ? "" : "went "));
    return fmt::format("{}", fmt::join(parts, " and "));
}

Feature context_feature(const Request& request, const Grant& grant, const Plan& plan) {
    const std::uint64_t target = request.context.value.target;
    Feature feature{.name = "context",
                    .requested = std::to_string(target),
                    .granted = std::to_string(grant.context_tokens),
                    .bytes = class_bytes(plan, RegionClass::kv),
                    .source = request.context.source};
    const std::string kv =
        fmt::format("{} rows, {}", kv_format_name(grant.kv_format), format_bytes(feature.bytes));
    if (request.context_is_max.value)
        feature.reason = fmt::format("the largest that fits; {}", kv);
    else if (grant.context_tokens < target)
        feature.reason = fmt::format("{} of {} tokens: what the expert floor leaves; {}",
                                     format_count(grant.context_tokens), format_count(target), kv);
    else
        feature.reason = fmt::format("in full; {}", kv);
    return feature;
}

Feature chunk_feature(const Request& request, const Grant& grant, const Plan& plan) {
    const std::uint64_t target = request.prefill_chunk.value.target;
    Feature feature{.name = "prefill_chunk",
                    .requested = std::to_string(target),
                    .granted = std::to_string(grant.chunk_tokens),
                    .bytes = class_bytes(plan, RegionClass::workspace),
                    .source = request.prefill_chunk.source};
    const bool streams = !plan.refusal && plan.experts_on_devices() < plan.experts_total;
    if (grant.chunk_tokens < target)
        feature.reason = fmt::format("{} of {} tokens, so that more important things fit",
                                     format_count(grant.chunk_tokens), format_count(target));
    else if (streams)
        feature.reason = "in full: each streamed expert is shared by the whole chunk";
    else
        feature.reason = "in full";
    return feature;
}

Feature mtp_feature(const Footprint& footprint, const Request& request, const Grant& grant,
                    const Plan& plan) {
    const bool wanted = footprint.mtp() != nullptr && request.mtp.value != Wish::off;
    Feature feature{.name = "mtp",
                    .requested = boolean(wanted),
                    .granted = boolean(grant.mtp),
                    .bytes = class_bytes(plan, RegionClass::mtp_weights) +
                             class_bytes(plan, RegionClass::mtp_cache),
                    .source = request.mtp.source == Source::by_default ? request.mtp_model.source
                                                                       : request.mtp.source};
    if (grant.mtp)
        feature.reason = fmt::format("on, {} draft{}", grant.drafts, grant.drafts == 1 ? "" : "s");
    else if (!wanted)
        feature.reason = request.mtp_model.value.empty() ? "no draft head named" : "switched off";
    else
        feature.reason = "off: its weights would have pushed experts off the device";
    return feature;
}

Feature fp16_feature(const Footprint& footprint, const Request& request, const Division& division,
                     const Plan& plan) {
    std::uint64_t full_bytes = 0, full_tensors = 0, tensors = 0, layers = 0;
    for (const DeviceShare& share : division.devices) {
        for (const Fp16Candidate& candidate : footprint.fp16_candidates_of(share))
            full_bytes += candidate.size_bytes;
        full_tensors += footprint.fp16_candidates_of(share).size();
        tensors += share.fp16_tensors;
    }
    for (const DevicePlan& device : plan.devices)
        for (const Region& region : device.arena.regions)
            if (region.kind == RegionKind::layer_fp16) ++layers;
    const bool off = request.fp16_cache.value == Wish::off;
    Feature feature{.name = "fp16_cache",
                    .requested = std::to_string(off ? 0 : full_bytes),
                    .granted = std::to_string(class_bytes(plan, RegionClass::fp16_cache)),
                    .bytes = class_bytes(plan, RegionClass::fp16_cache),
                    .source = request.fp16_cache.source};
    if (off)
        feature.reason = footprint.machine().is_cpu()
                             ? "not applicable: the CPU reads quantised weights in place"
                             : "switched off";
    else if (tensors == full_tensors && full_tensors != 0)
        feature.reason = fmt::format("in full, {} layers", plan.n_layers);
    else
        feature.reason =
            fmt::format("{} of {}, {} of {} layers; {}", format_bytes(feature.bytes),
                        format_bytes(full_bytes), layers, plan.n_layers, spent_on(plan));
    return feature;
}

Feature embedding_feature(const Request& request, const Grant& grant, const Plan& plan) {
    const bool host_asked = request.embedding.value == Placement::host;
    Feature feature{.name = "embedding",
                    .requested = quoted(host_asked ? "host" : "device"),
                    .granted = quoted(grant.embedding_on_host ? "host" : "device"),
                    .bytes = class_bytes(plan, RegionClass::embedding) +
                             plan.host.arena.bytes_of(RegionClass::embedding),
                    .source = request.embedding.source};
    if (!grant.embedding_on_host)
        feature.reason = "on the device";
    else
        feature.reason =
            host_asked ? "on the host, as asked" : "on the host: one row a token crosses the link";
    return feature;
}

Feature experts_feature(const Request& request, const Plan& plan) {
    const std::uint64_t here = plan.refusal ? 0 : plan.experts_on_devices();
    Feature feature{.name = "experts",
                    .requested = std::to_string(
                        request.experts.value == Placement::host ? 0 : plan.experts_total),
                    .granted = std::to_string(here),
                    .bytes = class_bytes(plan, RegionClass::expert_weights),
                    .source = request.experts.source};
    if (plan.refusal)
        feature.reason = "nothing is placed: the plan does not fit";
    else if (here == plan.experts_total)
        feature.reason = fmt::format("all {} on the device", format_count(here));
    else {
        std::uint64_t pool_slots = 0;
        for (const DevicePlan& device : plan.devices)
            for (const Region& region : device.arena.regions)
                if (region.kind == RegionKind::expert_pool) pool_slots += region.slot_count;
        feature.reason = fmt::format(
            "{} on the device, {} on the host, {} in the file; {} slots to stream through",
            format_count(here), format_count(plan.host.experts), format_count(plan.nvme.experts),
            format_count(pool_slots));
    }
    return feature;
}

Feature dense_feature(const Footprint& footprint, const Request& request, const Grant& grant,
                      const Plan& plan) {
    const std::uint32_t n_layers = footprint.model().hyper.n_layers;
    const bool streamed = grant.head_streamed || grant.dense_streamed_layers != 0;
    Feature feature{.name = "dense_weights",
                    .requested = quoted("device"),
                    .granted = quoted(streamed ? "host" : "device"),
                    .bytes = class_bytes(plan, RegionClass::dense_weights),
                    .source = request.spill.source};
    if (!streamed)
        feature.reason = fmt::format("all {} layers and the output head on the device", n_layers);
    else
        feature.reason = fmt::format("streamed from the host: {}{} of {} layers",
                                     grant.head_streamed ? "the output head and " : "",
                                     grant.dense_streamed_layers, n_layers);
    return feature;
}

Feature kv_format_feature(const Request& request, const Grant& grant, const Plan& plan) {
    Feature feature{.name = "kv_format",
                    .requested = quoted(kv_format_name(request.kv_format.value)),
                    .granted = quoted(kv_format_name(grant.kv_format)),
                    .bytes = class_bytes(plan, RegionClass::kv),
                    .source = request.kv_format.source};
    if (grant.kv_format == KvFormat::packed)
        feature.reason = "rounded dims in 8 and 4 bits, exactly; rope dims in F16";
    else if (grant.precise) {
        feature.reason = "float32 rows, because precise is set";
        feature.source = request.precise.source;
    } else if (!grant.rounding) {
        feature.reason = "float32 rows, because cache rounding is off";
        feature.source = request.rounding.source;
    } else
        feature.reason = "float32 rows, as asked";
    return feature;
}

}  // namespace

std::vector<Feature> describe_features(const Footprint& footprint, const Request& request,
                                       const Division& division, const Plan& plan) {
    const Grant& grant = division.grant;
    return {context_feature(request, grant, plan),
            chunk_feature(request, grant, plan),
            mtp_feature(footprint, request, grant, plan),
            fp16_feature(footprint, request, division, plan),
            embedding_feature(request, grant, plan),
            experts_feature(request, plan),
            dense_feature(footprint, request, grant, plan),
            kv_format_feature(request, grant, plan)};
}

std::vector<std::string> describe_settings(const Request& request, const MachineFacts& machine) {
    std::vector<std::string> notes;
    const auto note = [&](const auto& setting, std::string_view name, std::string value) {
        if (setting.source == Source::by_default) return;
        notes.push_back(
            fmt::format("{} = {}, set by {}", name, value,
                        setting.source == Source::cli ? "the command line" : "the profile"));
    };
    const auto wish = [](Wish value) {
        constexpr std::string_view kNames[] = {"off", "prefer", "require"};
        return std::string(kNames[static_cast<std::size_t>(value)]);
    };
    const auto optional_size = [](const std::optional<std::uint64_t>& bytes) {
        return bytes ? format_mib(*bytes) : std::string("none");
    };
    note(request.vram_bytes, "vram", optional_size(request.vram_bytes.value));
    note(request.reserve_bytes, "reserve", format_mib(request.reserve_bytes.value));
    note(request.host_bytes, "host memory",
         machine.unified_memory ? "not applicable: the device shares the host's memory"
                                : optional_size(request.host_bytes.value));
    note(request.host_percent, "host percent", std::to_string(request.host_percent.value));
    note(request.nvme, "nvme", request.nvme.value);
    note(request.spill, "spill", boolean(request.spill.value));
    note(request.context_wish, "context mode", wish(request.context_wish.value));
    note(request.prefill_chunk_wish, "prefill chunk mode", wish(request.prefill_chunk_wish.value));
    note(request.mtp, "mtp mode", wish(request.mtp.value));
    note(request.drafts, "drafts",
         request.mtp_model.value.empty() ? "not applicable: no draft head named"
                                         : std::to_string(request.drafts.value));
    note(request.fp16_cache, "fp16 cache mode", wish(request.fp16_cache.value));
    note(request.fp16_cache_max_bytes, "fp16 cache cap",
         optional_size(request.fp16_cache_max_bytes.value));
    note(request.embedding_wish, "embedding mode", wish(request.embedding_wish.value));
    note(request.experts_wish, "experts mode", wish(request.experts_wish.value));
    note(request.experts_device_max_bytes, "experts on devices at most",
         optional_size(request.experts_device_max_bytes.value));
    note(request.rounding, "cache rounding", boolean(request.rounding.value));
    note(request.precise, "precise", boolean(request.precise.value));
    note(request.sessions, "sessions", std::to_string(request.sessions.value));
    note(request.strict, "strict", boolean(request.strict.value));
    note(request.ladder, "ladder", [&] {
        std::vector<std::string_view> names;
        for (const Step step : request.ladder.value) names.push_back(step_name(step));
        return fmt::format("{}", fmt::join(names, ", "));
    }());
    return notes;
}

std::vector<std::string> describe_gaps(const Footprint& footprint, const Division& division,
                                       const Plan& plan) {
    std::vector<std::string> gaps;
    if (plan.experts_on_devices() < plan.experts_total) {
        Division all = division;
        for (DeviceShare& share : all.devices) share.experts = footprint.experts_of(share);
        all.host_experts = 0;
        for (std::size_t device = 0; device < all.devices.size(); ++device) {
            const std::uint64_t need = footprint.device_bytes(all, device);
            const std::uint64_t budget = plan.devices[device].budget_bytes;
            if (need > budget)
                gaps.push_back(fmt::format("all experts of {} would need {} more there",
                                           plan.devices[device].facts.name,
                                           format_mib(need - budget)));
        }
    }
    if (plan.nvme.experts != 0 && !plan.unified_memory)
        gaps.push_back(fmt::format("{} more host memory would keep every expert off the disk",
                                   format_mib(plan.nvme.bytes)));
    if (division.grant.drafts > 0 && plan.experts_on_devices() < plan.experts_total)
        gaps.push_back("drafts stream experts of their own; speculation may not pay here");
    return gaps;
}

}  // namespace plimsoll
