#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/machine.hpp"
#include "planner/model.hpp"
#include "planner/request.hpp"
#include "planner/schedule.hpp"

namespace plimsoll {

/// What a region is for. Every planned byte belongs to one class.
enum class RegionClass : std::uint8_t {
    dense_weights,
    expert_weights,
    kv,
    mtp_weights,
    mtp_cache,
    fp16_cache,
    workspace,
    gemm_workspace,
    logits,
    staging,
    embedding,
    count,
};
inline constexpr std::size_t kRegionClassCount = static_cast<std::size_t>(RegionClass::count);
[[nodiscard]] std::string_view region_class_name(RegionClass cls);
[[nodiscard]] std::optional<RegionClass> find_region_class(std::string_view name);

/// What one region holds; with layer and slot size it determines the region's name and its inner
/// layout.
enum class RegionKind : std::uint8_t {
    layer_dense,  // "blk.N.dense": every tensor of the layer but its routed experts, in role order
    head_dense,   // "head.dense": output_norm and output_hc_*
    head_output,  // "head.output": output.weight
    embedding,    // "embedding": token_embd.weight
    layer_experts,   // "blk.N.experts": array of expert slots, ids in `experts`
    expert_pool,     // "experts.pool.<slot bytes>": slots that streamed experts take turns in
    kv_window,       // "blk.N.kv.window": ring, one slot a session
    kv_rows,         // "blk.N.kv.rows": compressed rows
    kv_index,        // "blk.N.kv.index": indexer rows
    kv_state,        // "blk.N.kv.state": rolling state of the attention compressor
    kv_index_state,  // "blk.N.kv.index_state"
    layer_fp16,      // "blk.N.fp16": F16 copies of `tensors`
    workspace,       // "workspace": packed buffers of the schedule
    gemm_workspace,  // "gemm_workspace"
    logits,          // "logits": [1 + drafts, vocab] f32, one slot a session
    staging_dense,   // "staging.dense": one streamed layer at a time
    staging_head,    // "staging.head": a tile of the streamed output head
    staging_peer,    // "staging.peer": residual streams from the device before
    staging_ring,    // "staging.ring", host: pinned buffers of loads and NVMe reads
    mtp_dense,       // "mtp.dense"
    mtp_experts,     // "mtp.experts"
    mtp_window,      // "mtp.window"
    mtp_hidden,      // "mtp.hidden": the last token's streams, for the next chunk's first draft row
    count,
};

/// A planned range of an arena.
struct Region {
    std::string name;
    RegionKind kind = RegionKind::layer_dense;
    RegionClass cls = RegionClass::dense_weights;
    std::int32_t layer = kNoLayer;
    std::uint64_t offset_bytes = 0;  // from the arena's start; a multiple of kTensorAlignmentBytes
    std::uint64_t size_bytes =
        0;  // a multiple of kTensorAlignmentBytes, so pads count where they follow
    std::uint64_t slot_bytes = 0;  // array regions: size_bytes == slot_bytes * slot_count
    std::uint64_t slot_count = 0;  // 0: not an array
    /// layer_experts: ids [expert_first, expert_first + slot_count) in slot order.
    std::uint32_t expert_first = 0;
    std::vector<TensorRole> tensors;  // layer_fp16: which tensors, in this order

    bool operator==(const Region&) const = default;
};

/// One allocation: all regions of a tier of a device or of the host.
struct Arena {
    std::string name;                 // "cuda:0", "cpu", "host"
    std::vector<Region> regions;      // by ascending offset, no gaps
    std::uint64_t planned_bytes = 0;  // the allocation's size
    std::array<std::uint64_t, kRegionClassCount> by_class{};

    [[nodiscard]] const Region* find(RegionKind kind, std::int32_t layer = kNoLayer) const;
    [[nodiscard]] std::uint64_t bytes_of(RegionClass cls) const {
        return by_class[static_cast<std::size_t>(cls)];
    }
    bool operator==(const Arena&) const = default;
};

/// A packed workspace buffer, offset from its device's workspace region.
struct WorkspaceBuffer {
    std::string name;  // "csa_layer.q"
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
    Lifetime lifetime;

    bool operator==(const WorkspaceBuffer&) const = default;
};

struct DevicePlan {
    DeviceFacts facts;
    std::uint64_t vram_bytes = 0;  // free memory before overhead
    std::uint64_t free_bytes = 0;  // after overhead
    std::uint64_t reserve_bytes = 0;
    std::uint64_t budget_bytes = 0;  // free - reserve
    std::uint32_t layer_first = 0;   // layers [layer_first, layer_last) run here
    std::uint32_t layer_last = 0;
    std::uint64_t experts = 0;  // resident here for good, pool slots not counted
    Arena arena;
    std::vector<WorkspaceBuffer> workspace;  // in the schedule's buffer order
    std::uint64_t workspace_packed_bytes = 0;
    std::uint64_t workspace_lower_bound_bytes = 0;

    [[nodiscard]] std::uint64_t slack_bytes() const { return budget_bytes - arena.planned_bytes; }
    bool operator==(const DevicePlan&) const = default;
};

struct HostPlan {
    std::uint64_t available_bytes = 0;
    std::string available_source;
    std::uint64_t budget_bytes = 0;
    std::uint64_t pinned_bytes = 0;
    std::uint64_t experts = 0;
    Arena arena;

    bool operator==(const HostPlan&) const = default;
};

/// Experts read from the model file when needed: ids [first, n_experts) of each layer listed.
struct NvmeLayer {
    std::uint32_t layer = 0;
    std::uint32_t expert_first = 0;
    std::uint32_t expert_count = 0;
    bool operator==(const NvmeLayer&) const = default;
};
struct NvmePlan {
    std::uint64_t bytes = 0;
    std::uint64_t experts = 0;
    std::vector<NvmeLayer> layers;
    bool operator==(const NvmePlan&) const = default;
};

/// What the ladder settled on: the numbers every region's size follows from.
struct Grant {
    std::uint64_t context_tokens = 0;
    std::uint64_t chunk_tokens = 0;
    std::uint64_t sessions = 1;
    std::uint64_t drafts = 0;  // 0 without MTP
    bool mtp = false;
    bool embedding_on_host = false;
    bool head_streamed = false;
    std::uint32_t dense_streamed_layers = 0;  // the first so many layers of the model
    KvFormat kv_format = KvFormat::packed;
    bool rounding = true;
    bool precise = false;  // float32 activations and rows
    bool operator==(const Grant&) const = default;
};

enum class Verdict : std::uint8_t { full, degraded, spilled, no_fit };
[[nodiscard]] std::string_view verdict_name(Verdict verdict);

/// One row of the decision log: what was asked, what was given, and why, in words.
struct Feature {
    std::string name;
    std::string requested;  // as JSON: 131072, true, "device"
    std::string granted;
    std::uint64_t bytes = 0;
    Source source = Source::by_default;
    std::string reason;
    bool operator==(const Feature&) const = default;
};

struct Prediction {
    double decode_tokens_per_s = 0;
    double prefill_tokens_per_s = 0;
    double load_seconds = 0;
    std::string bound;  // "memory of cuda:0", "PCIe", "NVMe", …: what decode waits for most
    bool operator==(const Prediction&) const = default;
};

/// A change that would lead to a plan, and the verdict it would have.
struct Suggestion {
    std::string text;
    std::string option;  // what to type: "--ctx 65536"
    Verdict verdict = Verdict::no_fit;
    bool operator==(const Suggestion&) const = default;
};

struct Refusal {
    std::string pool;               // "cuda:0", "host"
    std::uint64_t short_bytes = 0;  // floor + reserve + overhead - vram
    std::uint64_t floor_bytes = 0;  // the least the required features can be had for
    std::string reason;             // names the features that cannot be given up
    std::vector<Suggestion> suggestions;
    bool operator==(const Refusal&) const = default;
};

/// What a plan was made from, so that a launch can tell whether it still applies.
struct ModelRef {
    std::string name;
    std::string path;  // empty for an inventory
    std::uint64_t fingerprint = 0;
    bool operator==(const ModelRef&) const = default;
};

/// The whole decision. Data only: printed, saved, compared and launched later.
struct Plan {
    ModelRef model;
    std::optional<ModelRef> mtp_model;
    std::uint32_t n_layers = 0;
    std::uint64_t experts_total = 0;
    std::string machine_name;
    bool unified_memory = false;
    Verdict verdict = Verdict::no_fit;
    Grant grant;                      // of the floor on a refusal
    std::vector<DevicePlan> devices;  // arenas empty on a refusal
    HostPlan host;
    NvmePlan nvme;
    std::vector<Feature> features;
    Prediction predicted;
    std::optional<Refusal> refusal;
    std::vector<std::string> notes;  // one line each, for people
    SamplingDefaults sampling;

    [[nodiscard]] std::uint64_t experts_on_devices() const {
        std::uint64_t sum = 0;
        for (const DevicePlan& device : devices) sum += device.experts;
        return sum;
    }
    bool operator==(const Plan&) const = default;
};

/// The plan for a model on a machine, or the refusal that says what is missing. `mtp` may be null.
/// Pure; an Error only for a request that contradicts itself or a machine that cannot be.
[[nodiscard]] Result<Plan> make_plan(const Model& model, const Model* mtp,
                                     const MachineFacts& machine, const Request& request);

/// The first rule that a plan breaks, in words, or nothing. Naive, and shares no code with the
/// planner: regions and live workspace buffers overlap nowhere, are aligned, add up, and stay
/// within their budgets.
[[nodiscard]] std::optional<std::string> validate(const Plan& plan);

/// Whether the plan is what its grant and its numbers of experts imply for these models, region by
/// region: a saved plan may have been edited. `mtp` may be null. The error, kind bad_file, says
/// where it differs first.
[[nodiscard]] Status check_against(const Plan& plan, const Model& model, const Model* mtp);

/// True where `a` is worse than `b`: fits, dense on the device, context, chunk up to 2,048, experts
/// on devices, MTP, embedding on the device, chunk, fp16 bytes; the first difference decides.
[[nodiscard]] bool is_worse(const Plan& a, const Plan& b);

/// A 64-bit FNV-1a digest of the plan's YAML text.
[[nodiscard]] std::uint64_t plan_hash(const Plan& plan);

/// The plan as YAML: byte-stable, readable, and all of it. See docs/plan-format.md.
[[nodiscard]] std::string plan_to_yaml(const Plan& plan);
[[nodiscard]] Result<Plan> plan_from_yaml(const std::string& text, const std::string& source);

/// The object of `fit --json`, pretty-printed, newline-terminated.
[[nodiscard]] std::string plan_to_json(const Plan& plan);

/// The schedule that a device of the plan runs. The model is the one the plan was made from.
[[nodiscard]] Schedule schedule_of(const Plan& plan, std::size_t device, const Model& model,
                                   const Model* mtp);

}  // namespace plimsoll
