#include "tests/planner/sample_plan.hpp"

namespace plimsoll::test {
namespace {

constexpr std::uint64_t kSlotBytes = 1024;

/// Appends a region after the last one.
void add(Arena& arena, Region region) {
    region.offset_bytes = arena.planned_bytes;
    if (region.slot_count != 0) region.size_bytes = region.slot_bytes * region.slot_count;
    arena.planned_bytes += region.size_bytes;
    arena.by_class[static_cast<std::size_t>(region.cls)] += region.size_bytes;
    arena.regions.push_back(std::move(region));
}

Region experts(std::int32_t layer, std::uint32_t first, std::uint64_t count) {
    return {.name = "blk." + std::to_string(layer) + ".experts",
            .kind = RegionKind::layer_experts,
            .cls = RegionClass::expert_weights,
            .layer = layer,
            .slot_bytes = kSlotBytes,
            .slot_count = count,
            .expert_first = first};
}

DevicePlan device() {
    DevicePlan out{.facts = {.name = "cuda:0",
                             .architecture = "sm_89",
                             .total_bytes = 1 << 20,
                             .overhead_bytes = 4096,
                             .gemm_workspace_bytes = 0,
                             .memory_bandwidth_bytes_per_s = 1.008e12,
                             .pcie_bandwidth_bytes_per_s = 2.4e10 / 0.9,
                             .fp16_flops_per_s = 1.65e14},
                   .vram_bytes = 65536,
                   .free_bytes = 61440,
                   .reserve_bytes = 8192,
                   .budget_bytes = 53248,
                   .layer_first = 0,
                   .layer_last = 2,
                   .experts = 4};
    out.arena.name = "cuda:0";
    add(out.arena, {.name = "blk.0.dense", .layer = 0, .size_bytes = 2048});
    add(out.arena, {.name = "blk.1.dense", .layer = 1, .size_bytes = 2048});
    add(out.arena, experts(0, 0, 3));
    add(out.arena, experts(1, 0, 1));
    add(out.arena, {.name = "blk.0.fp16",
                    .kind = RegionKind::layer_fp16,
                    .cls = RegionClass::fp16_cache,
                    .layer = 0,
                    .size_bytes = 512,
                    .tensors = {TensorRole::attn_q_a, TensorRole::attn_q_b}});
    add(out.arena, {.name = "workspace",
                    .kind = RegionKind::workspace,
                    .cls = RegionClass::workspace,
                    .size_bytes = 1536});
    // `q` takes the place of `attn_in`, which is dead by then.
    out.workspace = {{"csa_layer.attn_in", 0, 500, {0, 2}},
                     {"csa_layer.q", 0, 1024, {2, 4}},
                     {"csa_layer.kv_rows", 1024, 512, {1, 4}}};
    out.workspace_packed_bytes = 1536;
    out.workspace_lower_bound_bytes = 1536;
    return out;
}

HostPlan host() {
    HostPlan out{.available_bytes = 10'000,
                 .available_source = "--host-mem",
                 .budget_bytes = 8'000,
                 .pinned_bytes = 2'048,
                 .experts = 2};
    out.arena.name = "host";
    add(out.arena, experts(0, 3, 1));
    add(out.arena, experts(1, 1, 1));
    return out;
}

}  // namespace

Plan sample_plan() {
    return {.model = {.name = "tiny", .path = "/models/a \"tiny\" one.gguf", .fingerprint = 7},
            .mtp_model = ModelRef{.name = "tiny-mtp", .fingerprint = ~0ull},
            .n_layers = 2,
            .experts_total = 8,
            .machine_name = "rtx-4090-24gb",
            .verdict = Verdict::spilled,
            .grant = {.context_tokens = 4096, .chunk_tokens = 256, .drafts = 1, .mtp = true},
            .devices = {device()},
            .host = host(),
            .nvme = {.bytes = 2 * kSlotBytes,
                     .experts = 2,
                     .layers = {{.layer = 1, .expert_first = 2, .expert_count = 2}}},
            .features = {{.name = "context",
                          .requested = "4096",
                          .granted = "4096",
                          .bytes = 3,
                          .source = Source::cli,
                          .reason = "in full: \u4f60\u597d, \"packed\" rows"},
                         {.name = "embedding",
                          .requested = "\"device\"",
                          .granted = "\"host\"",
                          .source = Source::yaml}},
            .predicted = {.decode_tokens_per_s = 1.0 / 3.0,
                          .prefill_tokens_per_s = 445.60102666476575,
                          .load_seconds = 1e-7,
                          .bound = "NVMe"},
            .notes = {"a note: with #, {braces} and \\ a backslash", "true"},
            .sampling = {.temperature = 0.1, .top_k = 0, .seed = ~0ull}};
}

Plan refused_plan() {
    Plan plan = sample_plan();
    plan.verdict = Verdict::no_fit;
    DevicePlan& device = plan.devices[0];
    device.arena = {.name = "cuda:0"};
    device.experts = 0;
    device.workspace.clear();
    device.workspace_packed_bytes = device.workspace_lower_bound_bytes = 0;
    plan.host.arena = {.name = "host"};
    plan.host.experts = plan.host.pinned_bytes = 0;
    plan.nvme = {};
    plan.predicted = {};
    plan.refusal = Refusal{
        .pool = "cuda:0",
        .short_bytes = 1u << 30,
        .floor_bytes = 60'000,
        .reason = "required: context 4,096",
        .suggestions = {{"lower context to 2,048 tokens", "--ctx 2048", Verdict::degraded}}};
    return plan;
}

}  // namespace plimsoll::test
