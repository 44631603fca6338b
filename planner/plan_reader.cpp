#include <fmt/format.h>

#include <charconv>
#include <span>

#include "planner/plan.hpp"
#include "planner/plan_names.hpp"
#include "planner/units.hpp"
#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

// Limits of a plan file: far above any machine, and low enough that sums of a few stay in 64 bits.
constexpr std::uint64_t kBytesMax = (1ull << 63) - 1;
constexpr std::uint64_t kAnyCount = ~0ull;
constexpr std::uint64_t kTokensMax = 1ull << 40;
constexpr std::uint64_t kExpertsMax = 1ull << 32;
constexpr std::uint32_t kLayersMax = 1u << 16;
constexpr double kRealMax = 1e30;

constexpr std::string_view kKvFormatNames[] = {"packed", "f32"};
constexpr std::string_view kSourceNames[] = {"default", "yaml", "cli"};

/// Reads the mapping at `key` of `parent` with `read`, handing a problem inside it up. Its absence
/// is an error, as every key that a plan writes is needed to launch it.
template <class Read>
void mapping(YamlReader& parent, std::string_view key, Read&& read) {
    parent.require(key);
    const YamlNode* node = parent.child(key);
    if (node == nullptr || parent.failed()) return;
    YamlReader reader(*node, parent.source(), std::string(key));
    read(reader);
    if (const Status done = reader.finish(); !done) parent.adopt(done.error());
}

/// The same for a list of mappings, each read into a new element of `out`.
template <class Item, class Read>
void list_of(YamlReader& parent, std::string_view key, std::vector<Item>& out, Read&& read) {
    parent.require(key);
    const YamlNode* node = parent.child(key);
    if (node == nullptr || parent.failed()) return;
    if (node->kind != YamlNode::Kind::sequence)
        return parent.fail(node->line, fmt::format("{} must be a list", key));
    for (const YamlNode& item : node->items) {
        YamlReader reader(item, parent.source(), fmt::format("{}[{}]", key, out.size()));
        Item value;
        read(reader, value);
        if (const Status done = reader.finish(); !done) return parent.adopt(done.error());
        out.push_back(std::move(value));
    }
}

void narrow(YamlReader& reader, std::string_view key, std::uint32_t& out, std::uint64_t max) {
    std::uint64_t wide = out;
    reader.count(key, wide, 0, max);
    out = static_cast<std::uint32_t>(wide);
}

void bytes(YamlReader& reader, std::string_view key, std::uint64_t& out) {
    reader.require(key).count(key, out, 0, kBytesMax);
}

template <class Enum>
void choice(YamlReader& reader, std::string_view key, Enum& out,
            std::span<const std::string_view> names) {
    std::size_t index = static_cast<std::size_t>(out);
    reader.require(key).choice(key, index, names);
    out = static_cast<Enum>(index);
}

/// "0x" and sixteen digits.
void hex(YamlReader& reader, std::string_view key, std::uint64_t& out) {
    std::string text;
    reader.text(key, text);
    const YamlNode* node = reader.child(key);
    if (node == nullptr || reader.failed()) return;
    const char* first = text.data() + 2;
    const char* last = text.data() + text.size();
    const bool shaped = text.size() == 18 && text.starts_with("0x");
    if (!shaped || std::from_chars(first, last, out, 16).ptr != last)
        reader.fail(node->line, fmt::format("{} is '{}', must be 0x and 16 hex digits", key, text));
}

void read_model(YamlReader& reader, ModelRef& model) {
    reader.require("name").require("path").require("fingerprint");
    reader.text("name", model.name).text("path", model.path);
    hex(reader, "fingerprint", model.fingerprint);
}

void read_tensors(YamlReader& reader, Region& region) {
    const YamlNode* node = reader.child("tensors");
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::sequence)
        return reader.fail(node->line, "tensors must be a list of tensor names");
    for (const YamlNode& item : node->items) {
        const std::optional<TensorRole> role = find_tensor_role(item.scalar);
        if (!role) return reader.fail(item.line, fmt::format("unknown tensor '{}'", item.scalar));
        region.tensors.push_back(*role);
    }
}

void read_region(YamlReader& reader, Region& region) {
    reader.require("name").text("name", region.name);
    choice(reader, "kind", region.kind, region_kind_names());
    choice(reader, "class", region.cls, region_class_names());
    const YamlNode* layer_node = reader.child("layer");
    std::uint32_t layer = 0;
    narrow(reader, "layer", layer, kLayersMax - 1);
    if (layer_node != nullptr) region.layer = static_cast<std::int32_t>(layer);
    bytes(reader, "offset_bytes", region.offset_bytes);
    bytes(reader, "size_bytes", region.size_bytes);
    reader.count("slot_bytes", region.slot_bytes, 0, kBytesMax)
        .count("slot_count", region.slot_count, 0, kExpertsMax);
    narrow(reader, "expert_first", region.expert_first, kExpertsMax - 1);
    read_tensors(reader, region);
    if (reader.failed()) return;
    const std::uint32_t line = reader.line();
    if (region.offset_bytes > kBytesMax - region.size_bytes)
        reader.fail(line, fmt::format("region {} ends beyond 2^63 bytes", region.name));
    const auto product = checked_mul(region.slot_bytes, region.slot_count);
    if (!product || (region.slot_count != 0 && *product != region.size_bytes))
        reader.fail(line,
                    fmt::format("region {}: {} slots of {} bytes are not {} bytes", region.name,
                                region.slot_count, region.slot_bytes, region.size_bytes));
}

void read_arena(YamlReader& reader, Arena& arena) {
    reader.require("arena").text("arena", arena.name);
    bytes(reader, "planned_bytes", arena.planned_bytes);
    mapping(reader, "by_class", [&](YamlReader& sums) {
        for (std::size_t cls = 0; cls < kRegionClassCount; ++cls)
            sums.count(region_class_names()[cls], arena.by_class[cls], 0, kBytesMax);
    });
    list_of(reader, "regions", arena.regions, read_region);
}

void read_facts(YamlReader& reader, DeviceFacts& facts) {
    reader.require("architecture").text("architecture", facts.architecture);
    bytes(reader, "total_bytes", facts.total_bytes);
    bytes(reader, "overhead_bytes", facts.overhead_bytes);
    bytes(reader, "gemm_workspace_bytes", facts.gemm_workspace_bytes);
    const auto rate = [&](std::string_view key, double& out) {
        reader.require(key).real(key, out, 0, kRealMax);
    };
    rate("memory_bandwidth_bytes_per_s", facts.memory_bandwidth_bytes_per_s);
    rate("pcie_bandwidth_bytes_per_s", facts.pcie_bandwidth_bytes_per_s);
    rate("fp16_flops_per_s", facts.fp16_flops_per_s);
    rate("int8_ops_per_s", facts.int8_ops_per_s);
    reader.real("decode_bandwidth_share", facts.decode_bandwidth_share, 0, 1)
        .real("prefill_compute_share", facts.prefill_compute_share, 0, 1);
}

void read_buffer(YamlReader& reader, WorkspaceBuffer& buffer) {
    reader.require("name").require("first_op").require("last_op");
    reader.text("name", buffer.name);
    bytes(reader, "offset_bytes", buffer.offset_bytes);
    bytes(reader, "size_bytes", buffer.size_bytes);
    narrow(reader, "first_op", buffer.lifetime.first_op, kExpertsMax - 1);
    narrow(reader, "last_op", buffer.lifetime.last_op, kExpertsMax - 1);
    if (!reader.failed() && buffer.offset_bytes > kBytesMax - buffer.size_bytes)
        reader.fail(reader.line(), fmt::format("buffer {} ends beyond 2^63 bytes", buffer.name));
}

void read_device(YamlReader& reader, DevicePlan& device) {
    reader.require("name").text("name", device.facts.name);
    mapping(reader, "facts", [&](YamlReader& facts) { read_facts(facts, device.facts); });
    mapping(reader, "memory", [&](YamlReader& memory) {
        bytes(memory, "vram_bytes", device.vram_bytes);
        bytes(memory, "free_bytes", device.free_bytes);
        bytes(memory, "reserve_bytes", device.reserve_bytes);
        bytes(memory, "budget_bytes", device.budget_bytes);
    });
    mapping(reader, "layers", [&](YamlReader& layers) {
        layers.require("first").require("last");
        narrow(layers, "first", device.layer_first, kLayersMax);
        narrow(layers, "last", device.layer_last, kLayersMax);
    });
    reader.require("experts").count("experts", device.experts, 0, kExpertsMax);
    read_arena(reader, device.arena);
    mapping(reader, "workspace", [&](YamlReader& workspace) {
        bytes(workspace, "packed_bytes", device.workspace_packed_bytes);
        bytes(workspace, "lower_bound_bytes", device.workspace_lower_bound_bytes);
    });
    list_of(reader, "buffers", device.workspace, read_buffer);
}

void read_host(YamlReader& reader, HostPlan& host) {
    bytes(reader, "available_bytes", host.available_bytes);
    reader.require("available_source").text("available_source", host.available_source);
    bytes(reader, "budget_bytes", host.budget_bytes);
    bytes(reader, "pinned_bytes", host.pinned_bytes);
    reader.require("experts").count("experts", host.experts, 0, kExpertsMax);
    read_arena(reader, host.arena);
}

void read_nvme(YamlReader& reader, NvmePlan& nvme) {
    bytes(reader, "bytes", nvme.bytes);
    reader.require("experts").count("experts", nvme.experts, 0, kExpertsMax);
    list_of(reader, "layers", nvme.layers, [](YamlReader& row, NvmeLayer& layer) {
        row.require("layer").require("expert_first").require("expert_count");
        narrow(row, "layer", layer.layer, kLayersMax - 1);
        narrow(row, "expert_first", layer.expert_first, kExpertsMax - 1);
        narrow(row, "expert_count", layer.expert_count, kExpertsMax - 1);
    });
}

void read_grant(YamlReader& reader, Grant& grant) {
    const auto tokens = [&](std::string_view key, std::uint64_t& out) {
        reader.require(key).count(key, out, 0, kTokensMax);
    };
    const auto flag = [&](std::string_view key, bool& out) {
        reader.require(key).boolean(key, out);
    };
    tokens("context_tokens", grant.context_tokens);
    tokens("chunk_tokens", grant.chunk_tokens);
    tokens("sessions", grant.sessions);
    tokens("drafts", grant.drafts);
    flag("mtp", grant.mtp);
    flag("embedding_on_host", grant.embedding_on_host);
    flag("head_streamed", grant.head_streamed);
    reader.require("dense_streamed_layers");
    narrow(reader, "dense_streamed_layers", grant.dense_streamed_layers, kLayersMax);
    choice(reader, "kv_format", grant.kv_format, kKvFormatNames);
    flag("rounding", grant.rounding);
    flag("precise", grant.precise);
}

void read_feature(YamlReader& reader, Feature& feature) {
    for (const std::string_view key : {"name", "requested", "granted", "reason"})
        reader.require(key);
    reader.text("name", feature.name)
        .text("requested", feature.requested)
        .text("granted", feature.granted)
        .text("reason", feature.reason);
    bytes(reader, "bytes", feature.bytes);
    choice(reader, "source", feature.source, kSourceNames);
}

void read_predicted(YamlReader& reader, Prediction& predicted) {
    const auto real = [&](std::string_view key, double& out) {
        reader.require(key).real(key, out, 0, kRealMax);
    };
    real("decode_tokens_per_s", predicted.decode_tokens_per_s);
    real("prefill_tokens_per_s", predicted.prefill_tokens_per_s);
    real("load_seconds", predicted.load_seconds);
    reader.require("bound").text("bound", predicted.bound);
}

void read_refusal(YamlReader& reader, Refusal& refusal) {
    for (const std::string_view key : {"pool", "short_bytes", "floor_bytes", "reason"})
        reader.require(key);
    reader.text("pool", refusal.pool)
        .count("short_bytes", refusal.short_bytes, 0, kAnyCount)
        .count("floor_bytes", refusal.floor_bytes, 0, kAnyCount)
        .text("reason", refusal.reason);
    list_of(reader, "suggestions", refusal.suggestions, [](YamlReader& row, Suggestion& cure) {
        row.require("text").require("option");
        row.text("text", cure.text).text("option", cure.option);
        choice(row, "verdict", cure.verdict, verdict_names());
    });
}

void read_notes(YamlReader& reader, std::vector<std::string>& notes) {
    const YamlNode* node = reader.require("notes").child("notes");
    if (node == nullptr) return;
    if (node->kind != YamlNode::Kind::sequence)
        return reader.fail(node->line, "notes must be a list of lines");
    for (const YamlNode& item : node->items) {
        if (item.kind != YamlNode::Kind::scalar)
            return reader.fail(item.line, "a note must be a line of text");
        notes.push_back(item.scalar);
    }
}

void read_sampling(YamlReader& reader, SamplingDefaults& sampling) {
    const auto real = [&](std::string_view key, std::optional<double>& out) {
        double value = -1;
        reader.real(key, value, 0, kRealMax);
        if (value >= 0) out = value;
    };
    const auto count = [&](std::string_view key, std::optional<std::uint64_t>& out) {
        std::uint64_t value = 0;
        if (reader.child(key) == nullptr) return;
        reader.count(key, value, 0, kAnyCount);
        out = value;
    };
    real("temperature", sampling.temperature);
    real("top_p", sampling.top_p);
    real("min_p", sampling.min_p);
    count("top_k", sampling.top_k);
    count("seed", sampling.seed);
}

void read_plan(YamlReader& reader, Plan& plan) {
    std::uint64_t version = 0;
    reader.require("plan_version").count("plan_version", version, 1, 1);
    choice(reader, "verdict", plan.verdict, verdict_names());
    mapping(reader, "model", [&](YamlReader& model) { read_model(model, plan.model); });
    if (reader.child("mtp_model") != nullptr)
        mapping(reader, "mtp_model",
                [&](YamlReader& model) { read_model(model, plan.mtp_model.emplace()); });
    reader.require("n_layers").require("experts_total");
    narrow(reader, "n_layers", plan.n_layers, kLayersMax);
    reader.count("experts_total", plan.experts_total, 0, kExpertsMax);
    mapping(reader, "machine", [&](YamlReader& machine) {
        machine.require("name").require("unified_memory");
        machine.text("name", plan.machine_name).boolean("unified_memory", plan.unified_memory);
    });
    mapping(reader, "grant", [&](YamlReader& grant) { read_grant(grant, plan.grant); });
    list_of(reader, "features", plan.features, read_feature);
    mapping(reader, "predicted",
            [&](YamlReader& predicted) { read_predicted(predicted, plan.predicted); });
    if (reader.child("refusal") != nullptr)
        mapping(reader, "refusal",
                [&](YamlReader& refusal) { read_refusal(refusal, plan.refusal.emplace()); });
    read_notes(reader, plan.notes);
    mapping(reader, "sampling",
            [&](YamlReader& sampling) { read_sampling(sampling, plan.sampling); });
    list_of(reader, "devices", plan.devices, read_device);
    mapping(reader, "host", [&](YamlReader& host) { read_host(host, plan.host); });
    mapping(reader, "nvme", [&](YamlReader& nvme) { read_nvme(nvme, plan.nvme); });
}

}  // namespace

Result<Plan> plan_from_yaml(const std::string& text, const std::string& source) {
    const Result<YamlNode> root = parse_yaml(text, source);
    if (!root) return root.error();
    YamlReader reader(*root, source, "plan");
    Plan plan;
    read_plan(reader, plan);
    std::uint64_t hash = 0;
    const YamlNode* hash_node = reader.child("plan_hash");
    hex(reader, "plan_hash", hash);
    if (const Status done = reader.finish(); !done) return done.error();
    // A plan written by hand may leave the hash out; one that carries it must not have been edited
    // since.
    if (hash_node != nullptr && hash != plan_hash(plan))
        return yaml_error(source, hash_node->line,
                          "the plan was changed after it was saved: make it again with `plimsoll "
                          "fit -o`, or remove this line to take the responsibility");
    return plan;
}

}  // namespace plimsoll
