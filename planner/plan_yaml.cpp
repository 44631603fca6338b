#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "planner/fnv.hpp"
#include "planner/plan.hpp"
#include "planner/plan_names.hpp"
#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kHeader =
    "# Plimsoll plan: where every byte goes, and why. Sizes and offsets are in bytes.\n"
    "# Launch it with `plimsoll run --plan FILE`; see it with `plimsoll plan show FILE`.\n";

/// One flow mapping, "{a: 1, b: text}", built field by field. Absent fields read back as the
/// defaults of their struct, so that lines hold only what says something.
class FlowMap {
public:
    FlowMap& text(std::string_view key, std::string_view value) {
        return raw(key, yaml_scalar(value));
    }
    template <class Number>
    FlowMap& number(std::string_view key, Number value) {
        return raw(key, fmt::format("{}", value));
    }
    template <class Number>
    FlowMap& number_unless(Number usual, std::string_view key, Number value) {
        return value == usual ? *this : number(key, value);
    }
    FlowMap& raw(std::string_view key, std::string_view value) {
        body_ += fmt::format("{}{}: {}", body_.empty() ? "" : ", ", key, value);
        return *this;
    }
    [[nodiscard]] std::string str() const { return "{" + body_ + "}"; }

private:
    std::string body_;
};

/// "key: value" lines at an indentation.
class Lines {
public:
    explicit Lines(std::string& out, std::string indent = {})
        : out_(out), indent_(std::move(indent)) {}

    void raw(std::string_view key, std::string_view value) {
        out_ += fmt::format("{}{}: {}\n", indent_, key, value);
    }
    void text(std::string_view key, std::string_view value) { raw(key, yaml_scalar(value)); }
    template <class Number>
    void number(std::string_view key, Number value) {
        raw(key, fmt::format("{}", value));
    }
    /// A list with one line an item, or "[]".
    template <class Items, class Write>
    void list(std::string_view key, const Items& items, Write&& write) {
        if (items.empty()) return raw(key, "[]");
        out_ += fmt::format("{}{}:\n", indent_, key);
        for (const auto& item : items) out_ += fmt::format("{}  - {}\n", indent_, write(item));
    }

private:
    std::string& out_;
    std::string indent_;
};

std::string model_line(const ModelRef& model) {
    return FlowMap()
        .text("name", model.name)
        .text("path", model.path)
        .raw("fingerprint", fmt::format("\"0x{:016x}\"", model.fingerprint))
        .str();
}

std::string region_line(const Region& region) {
    FlowMap map;
    map.text("name", region.name)
        .text("kind", region_kind_name(region.kind))
        .text("class", region_class_name(region.cls))
        .number_unless(kNoLayer, "layer", region.layer)
        .number("offset_bytes", region.offset_bytes)
        .number("size_bytes", region.size_bytes)
        .number_unless(std::uint64_t{0}, "slot_bytes", region.slot_bytes)
        .number_unless(std::uint64_t{0}, "slot_count", region.slot_count)
        .number_unless(std::uint32_t{0}, "expert_first", region.expert_first);
    if (!region.tensors.empty()) {
        std::vector<std::string_view> names;
        for (const TensorRole role : region.tensors) names.push_back(tensor_role_name(role));
        map.raw("tensors", fmt::format("[{}]", fmt::join(names, ", ")));
    }
    return map.str();
}

std::string class_sums(const Arena& arena) {
    FlowMap map;
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
        map.number_unless(std::uint64_t{0}, region_class_name(static_cast<RegionClass>(cls)),
                          arena.by_class[cls]);
    return map.str();
}

void write_arena(Lines& lines, const Arena& arena) {
    lines.text("arena", arena.name);
    lines.number("planned_bytes", arena.planned_bytes);
    lines.raw("by_class", class_sums(arena));
    lines.list("regions", arena.regions, region_line);
}

std::string facts_line(const DeviceFacts& facts) {
    return FlowMap()
        .text("architecture", facts.architecture)
        .number("total_bytes", facts.total_bytes)
        .number("overhead_bytes", facts.overhead_bytes)
        .number("gemm_workspace_bytes", facts.gemm_workspace_bytes)
        .number("memory_bandwidth_bytes_per_s", facts.memory_bandwidth_bytes_per_s)
        .number("pcie_bandwidth_bytes_per_s", facts.pcie_bandwidth_bytes_per_s)
        .number("fp16_flops_per_s", facts.fp16_flops_per_s)
        .number("int8_ops_per_s", facts.int8_ops_per_s)
        .number_unless(0.0, "decode_bandwidth_share", facts.decode_bandwidth_share)
        .number_unless(0.0, "prefill_compute_share", facts.prefill_compute_share)
        .str();
}

std::string buffer_line(const WorkspaceBuffer& buffer) {
    return FlowMap()
        .text("name", buffer.name)
        .number("offset_bytes", buffer.offset_bytes)
        .number("size_bytes", buffer.size_bytes)
        .number("first_op", buffer.lifetime.first_op)
        .number("last_op", buffer.lifetime.last_op)
        .str();
}

void write_device(std::string& out, const DevicePlan& device) {
    out += fmt::format("  - name: {}\n", yaml_scalar(device.facts.name));
    Lines lines(out, "    ");
    lines.raw("facts", facts_line(device.facts));
    lines.raw("memory", FlowMap()
                            .number("vram_bytes", device.vram_bytes)
                            .number("free_bytes", device.free_bytes)
                            .number("reserve_bytes", device.reserve_bytes)
                            .number("budget_bytes", device.budget_bytes)
                            .str());
    lines.raw(
        "layers",
        FlowMap().number("first", device.layer_first).number("last", device.layer_last).str());
    lines.number("experts", device.experts);
    write_arena(lines, device.arena);
    lines.raw("workspace", FlowMap()
                               .number("packed_bytes", device.workspace_packed_bytes)
                               .number("lower_bound_bytes", device.workspace_lower_bound_bytes)
                               .str());
    lines.list("buffers", device.workspace, buffer_line);
}

void write_host(std::string& out, const HostPlan& host) {
    out += "host:\n";
    Lines lines(out, "  ");
    lines.number("available_bytes", host.available_bytes);
    lines.text("available_source", host.available_source);
    lines.number("budget_bytes", host.budget_bytes);
    lines.number("pinned_bytes", host.pinned_bytes);
    lines.number("experts", host.experts);
    write_arena(lines, host.arena);
}

void write_nvme(std::string& out, const NvmePlan& nvme) {
    out += "nvme:\n";
    Lines lines(out, "  ");
    lines.number("bytes", nvme.bytes);
    lines.number("experts", nvme.experts);
    lines.list("layers", nvme.layers, [](const NvmeLayer& row) {
        return FlowMap()
            .number("layer", row.layer)
            .number("expert_first", row.expert_first)
            .number("expert_count", row.expert_count)
            .str();
    });
}

std::string grant_line(const Grant& grant) {
    return FlowMap()
        .number("context_tokens", grant.context_tokens)
        .number("chunk_tokens", grant.chunk_tokens)
        .number("sessions", grant.sessions)
        .number("drafts", grant.drafts)
        .number("mtp", grant.mtp)
        .number("embedding_on_host", grant.embedding_on_host)
        .number("head_streamed", grant.head_streamed)
        .number("dense_streamed_layers", grant.dense_streamed_layers)
        .text("kv_format", kv_format_name(grant.kv_format))
        .number("rounding", grant.rounding)
        .number("precise", grant.precise)
        .str();
}

std::string feature_line(const Feature& feature) {
    return FlowMap()
        .text("name", feature.name)
        .text("requested", feature.requested)
        .text("granted", feature.granted)
        .number("bytes", feature.bytes)
        .text("source", source_name(feature.source))
        .text("reason", feature.reason)
        .str();
}

std::string suggestion_line(const Suggestion& suggestion) {
    return FlowMap()
        .text("text", suggestion.text)
        .text("option", suggestion.option)
        .text("verdict", verdict_name(suggestion.verdict))
        .str();
}

void write_refusal(std::string& out, const std::optional<Refusal>& refusal) {
    if (!refusal) return;
    out += "refusal:\n";
    Lines lines(out, "  ");
    lines.text("pool", refusal->pool);
    lines.number("short_bytes", refusal->short_bytes);
    lines.number("floor_bytes", refusal->floor_bytes);
    lines.text("reason", refusal->reason);
    lines.list("suggestions", refusal->suggestions, suggestion_line);
}

std::string sampling_line(const SamplingDefaults& sampling) {
    FlowMap map;
    const auto add = [&](std::string_view key, const auto& value) {
        if (value) map.number(key, *value);
    };
    add("temperature", sampling.temperature);
    add("top_p", sampling.top_p);
    add("min_p", sampling.min_p);
    add("top_k", sampling.top_k);
    add("seed", sampling.seed);
    return map.str();
}

/// Everything but the header and the hash, which is taken over this text.
std::string plan_body(const Plan& plan) {
    std::string out;
    Lines lines(out);
    lines.number("plan_version", 1);
    lines.text("verdict", verdict_name(plan.verdict));
    lines.raw("model", model_line(plan.model));
    if (plan.mtp_model) lines.raw("mtp_model", model_line(*plan.mtp_model));
    lines.number("n_layers", plan.n_layers);
    lines.number("experts_total", plan.experts_total);
    lines.raw("machine", FlowMap()
                             .text("name", plan.machine_name)
                             .number("unified_memory", plan.unified_memory)
                             .str());
    lines.raw("grant", grant_line(plan.grant));
    lines.list("features", plan.features, feature_line);
    lines.raw("predicted", FlowMap()
                               .number("decode_tokens_per_s", plan.predicted.decode_tokens_per_s)
                               .number("prefill_tokens_per_s", plan.predicted.prefill_tokens_per_s)
                               .number("load_seconds", plan.predicted.load_seconds)
                               .text("bound", plan.predicted.bound)
                               .str());
    write_refusal(out, plan.refusal);
    lines.list("notes", plan.notes, [](const std::string& note) { return yaml_scalar(note); });
    lines.raw("sampling", sampling_line(plan.sampling));
    if (plan.devices.empty())
        lines.raw("devices", "[]");
    else
        out += "devices:\n";
    for (const DevicePlan& device : plan.devices) write_device(out, device);
    write_host(out, plan.host);
    write_nvme(out, plan.nvme);
    return out;
}

}  // namespace

std::uint64_t plan_hash(const Plan& plan) { return Fnv1a64().add(plan_body(plan)).value(); }

std::string plan_to_yaml(const Plan& plan) {
    const std::string body = plan_body(plan);
    return fmt::format("{}{}plan_hash: \"0x{:016x}\"\n", kHeader, body,
                       Fnv1a64().add(body).value());
}

}  // namespace plimsoll
