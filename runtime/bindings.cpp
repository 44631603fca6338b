#include "runtime/bindings.hpp"

#include <fmt/format.h>

#include <utility>

#include "planner/check.hpp"
#include "planner/layout.hpp"
#include "planner/units.hpp"
#include "runtime/dense_weights.hpp"

namespace plimsoll {
namespace {

std::uint32_t narrow(std::uint64_t value) {
    PLIMSOLL_CHECK(value <= ~std::uint32_t{0}, fmt::format("{} does not fit 32 bits", value));
    return static_cast<std::uint32_t>(value);
}

kernels::KvFormat kernel_format(KvFormat format) {
    return format == KvFormat::packed ? kernels::KvFormat::packed : kernels::KvFormat::f32;
}

/// Takes regions one after the other and writes down what each is to be filled with.
class Binder {
public:
    Binder(const Plan& plan, const Model& model, const Model* mtp, ArenaMemory& device,
           ArenaMemory& host)
        : plan_(plan), grant_(plan.grant), model_(model), mtp_(mtp), device_(device), host_(host) {}

    BoundModel run(const Schedule& schedule) {
        fill_frequencies();
        bind_pools();
        bind_ends();
        const auto n_layers = static_cast<std::int32_t>(model_.hyper.n_layers);
        for (std::int32_t layer = 0; layer < n_layers; ++layer) bind_layer(layer);
        if (grant_.mtp) bind_draft_head();
        bind_workspace(schedule);
        return std::move(bound_);
    }

private:
    const Plan& plan_;
    const Grant& grant_;
    const Model& model_;
    const Model* mtp_;
    ArenaMemory& device_;
    ArenaMemory& host_;
    BoundModel bound_;

    void fill_frequencies() {
        const Hyperparameters& hyper = model_.hyper;
        Bindings& out = bound_.bindings;
        out.plain_frequencies.resize(hyper.rope_dim / 2);
        out.yarn_frequencies.resize(hyper.rope_dim / 2);
        kernels::rope_frequencies({.base = hyper.rope_freq_base, .rope_dim = hyper.rope_dim},
                                  out.plain_frequencies);
        kernels::rope_frequencies(
            {.base = hyper.compress_rope_freq_base,
             .rope_dim = hyper.rope_dim,
             .yarn = true,
             .factor = hyper.rope_scaling_factor,
             .original_context_tokens = static_cast<double>(hyper.rope_original_context_tokens),
             .beta_fast = hyper.yarn_beta_fast,
             .beta_slow = hyper.yarn_beta_slow},
            out.yarn_frequencies);
    }

    [[nodiscard]] kernels::RopeTable rope_of(std::uint32_t ratio) const {
        const Bindings& bindings = bound_.bindings;
        return {ratio == 0 ? bindings.plain_frequencies.data() : bindings.yarn_frequencies.data(),
                model_.hyper.rope_dim};
    }

    void load(const Model& model, const Tensor& tensor, std::uint64_t offset_bytes,
              std::uint64_t size_bytes, std::byte* destination) {
        bound_.loads.push_back({&model, &tensor, offset_bytes, size_bytes, destination});
    }

    /// Takes a dense region and has its tensors loaded.
    std::span<std::byte> take_dense(ArenaMemory& arena, const Model& model, RegionKind kind,
                                    std::int32_t layer = kNoLayer) {
        // The draft head has one layer, and its regions are of no layer of the main model.
        const std::int32_t region_layer = kind == RegionKind::mtp_dense ? kNoLayer : layer;
        const std::span<std::byte> bytes =
            arena.take(kind, region_layer, dense_bytes(model, kind, layer));
        for (const TensorPlace& place : dense_layout(model, kind, layer))
            load(model, *place.tensor, 0, place.tensor->size_bytes,
                 bytes.data() + place.offset_bytes);
        return bytes;
    }

    /// Session 0's slot of an array region whose slots hold `slot_bytes`.
    std::span<std::byte> take_session(RegionKind kind, std::int32_t layer,
                                      std::uint64_t slot_bytes) {
        const std::uint64_t slot = align_up(slot_bytes, kTensorAlignmentBytes);
        return device_.take(kind, layer, slot * grant_.sessions).first(slot);
    }

    void bind_pools() {
        for (const Region& region : device_.plan().regions)
            if (region.kind == RegionKind::expert_pool)
                bound_.bindings.pools.push_back({device_.take(region), region.slot_bytes});
    }

    void bind_ends();
    void bind_layer(std::int32_t layer);
    void bind_cache(LayerBinding& out, std::int32_t layer);
    void bind_experts(LayerExperts& out, std::int32_t layer);
    void bind_fp16_copies(LayerBinding& out, std::int32_t layer, const std::byte* dense);
    void place_experts(LayerExperts& out, const Model& model, std::int32_t layer,
                       std::span<std::byte> slots, std::uint64_t first_expert);
    void bind_draft_head();
    void bind_workspace(const Schedule& schedule);

    [[nodiscard]] kernels::KvRows kv_region(std::span<std::byte> bytes, std::uint64_t rows) const {
        return {bytes.data(), kernel_format(grant_.kv_format), narrow(rows), model_.hyper.head_dim,
                model_.hyper.rope_dim};
    }
    [[nodiscard]] std::uint64_t kv_bytes(std::uint64_t rows) const {
        return kv_rows_bytes(grant_.kv_format, rows, model_.hyper.head_dim, model_.hyper.rope_dim);
    }
};

/// Embedding, output head, logits.
void Binder::bind_ends() {
    Bindings& out = bound_.bindings;
    const Tensor& output = *model_.find(TensorRole::output);
    const auto embedding =
        take_dense(grant_.embedding_on_host ? host_ : device_, model_, RegionKind::embedding);
    out.embedding = matrix_at(*model_.find(TensorRole::token_embd), embedding.data());
    const auto head =
        take_dense(grant_.head_streamed ? host_ : device_, model_, RegionKind::head_output);
    out.output = matrix_at(output, head.data());
    if (grant_.head_streamed) {
        out.head_tile_rows = narrow(head_tile_rows(model_));
        out.staging_head = device_.take(RegionKind::staging_head, kNoLayer,
                                        output.size_bytes / output.dims[1] * out.head_tile_rows);
    }
    const auto mix = take_dense(device_, model_, RegionKind::head_dense);
    const DenseWeights weights(dense_layout(model_, RegionKind::head_dense), mix.data());
    out.head = {
        weights.matrix(TensorRole::output_hc_fn), weights.floats(TensorRole::output_hc_base),
        weights.floats(TensorRole::output_hc_scale), weights.floats(TensorRole::output_norm)};
    out.logits_rows = narrow(1 + grant_.drafts);
    out.logits = reinterpret_cast<float*>(
        take_session(RegionKind::logits, kNoLayer,
                     out.logits_rows * std::uint64_t{model_.hyper.vocab_size} * sizeof(float))
            .data());
    if (const Region* staging = device_.plan().find(RegionKind::staging_dense))
        out.staging_dense = device_.take(*staging);
    if (const Region* gemm = device_.plan().find(RegionKind::gemm_workspace))
        out.gemm_workspace = device_.take(*gemm);
    if (const Region* ring = host_.plan().find(RegionKind::staging_ring))
        out.staging_ring = host_.take(*ring);
}

void Binder::bind_layer(std::int32_t layer) {
    const auto index = static_cast<std::size_t>(layer);
    LayerBinding out;
    out.ratio = model_.hyper.compress_ratios[index];
    out.swiglu_clamp = model_.hyper.swiglu_clamp[index];
    out.rope = rope_of(out.ratio);
    const bool is_streamed = index < grant_.dense_streamed_layers;
    const auto dense =
        take_dense(is_streamed ? host_ : device_, model_, RegionKind::layer_dense, layer);
    std::byte* base = dense.data();
    if (is_streamed) {
        base = bound_.bindings.staging_dense.data();
        PLIMSOLL_CHECK(dense.size() <= bound_.bindings.staging_dense.size(),
                       fmt::format("layer {} has {} bytes to stream through {}", layer,
                                   dense.size(), bound_.bindings.staging_dense.size()));
        out.streamed_from = dense;
    }
    out.weights =
        layer_weights(DenseWeights(dense_layout(model_, RegionKind::layer_dense, layer), base));
    bind_cache(out, layer);
    bind_experts(out.experts, layer);
    bind_fp16_copies(out, layer, base);
    bound_.bindings.layers.push_back(out);
}

/// The layer's part of the fp16 cache. `dense` is where its dense region starts.
void Binder::bind_fp16_copies(LayerBinding& out, std::int32_t layer, const std::byte* dense) {
    const Region* region = device_.plan().find(RegionKind::layer_fp16, layer);
    if (region == nullptr) return;
    const std::span<std::byte> bytes = device_.take(*region);
    const auto places = dense_layout(model_, RegionKind::layer_dense, layer);
    const DenseWeights weights(places, dense);
    for (const TensorPlace& copy : fp16_layout(model_, layer, region->tensors)) {
        const kernels::WeightMatrix weight = weights.matrix(copy.tensor->role);
        std::byte* destination = bytes.data() + copy.offset_bytes;
        out.fp16_copies.push_back({weight.data, destination});
        bound_.fp16_fills.push_back({weight, destination});
    }
}

void Binder::bind_cache(LayerBinding& out, std::int32_t layer) {
    const Hyperparameters& hyper = model_.hyper;
    const std::uint64_t ring_rows = window_ring_rows(hyper, grant_);
    out.cache.window =
        kv_region(take_session(RegionKind::kv_window, layer, kv_bytes(ring_rows)), ring_rows);
    if (out.ratio == 0) return;
    const std::uint64_t rows = compressed_rows(grant_, out.ratio);
    out.cache.rows = kv_region(take_session(RegionKind::kv_rows, layer, kv_bytes(rows)), rows);
    out.cache.state =
        take_session(RegionKind::kv_state, layer, compressor_state_bytes(out.ratio, hyper.head_dim))
            .data();
    if (out.ratio != 4) return;
    const auto index =
        take_session(RegionKind::kv_index, layer,
                     indexer_rows_bytes(grant_.kv_format, rows, hyper.indexer_head_dim));
    out.cache.index = {index.data(), kernel_format(grant_.kv_format), narrow(rows),
                       hyper.indexer_head_dim};
    out.cache.index_state = take_session(RegionKind::kv_index_state, layer,
                                         compressor_state_bytes(out.ratio, hyper.indexer_head_dim))
                                .data();
}

/// Shapes of a layer's experts, and loads for the slots: expert first_expert + i into slot i.
void Binder::place_experts(LayerExperts& out, const Model& model, std::int32_t layer,
                           std::span<std::byte> slots, std::uint64_t first_expert) {
    const ExpertSize size = expert_size(model, layer);
    const Tensor* gate = model.find(TensorRole::ffn_gate_exps, layer);
    const Tensor* up = model.find(TensorRole::ffn_up_exps, layer);
    const Tensor* down = model.find(TensorRole::ffn_down_exps, layer);
    out.gate = matrix_at(*gate, nullptr);
    out.up = matrix_at(*up, nullptr);
    out.down = matrix_at(*down, nullptr);
    out.up_offset_bytes = align_up(size.gate_bytes, kTensorAlignmentBytes);
    out.down_offset_bytes = out.up_offset_bytes + align_up(size.up_bytes, kTensorAlignmentBytes);
    out.slot_bytes = align_up(size.slot_bytes, kTensorAlignmentBytes);
    for (std::uint64_t index = 0; index < slots.size() / out.slot_bytes; ++index) {
        const std::uint64_t expert = first_expert + index;
        std::byte* slot = slots.data() + index * out.slot_bytes;
        load(model, *gate, expert * size.gate_bytes, size.gate_bytes, slot);
        load(model, *up, expert * size.up_bytes, size.up_bytes, slot + out.up_offset_bytes);
        load(model, *down, expert * size.down_bytes, size.down_bytes, slot + out.down_offset_bytes);
    }
}

void Binder::bind_experts(LayerExperts& out, std::int32_t layer) {
    const std::uint64_t n_experts = model_.hyper.n_experts;
    if (const Region* region = device_.plan().find(RegionKind::layer_experts, layer))
        out.device_slots = device_.take(*region);
    place_experts(out, model_, layer, out.device_slots, 0);
    const std::uint64_t on_device = out.device_slots.size() / out.slot_bytes;
    out.host_first = narrow(on_device);
    out.first_item = narrow(static_cast<std::uint64_t>(layer) * n_experts);
    if (on_device == n_experts) return;
    const Region* region = host_.plan().find(RegionKind::layer_experts, layer);
    PLIMSOLL_CHECK(region != nullptr,
                   fmt::format("experts of layer {} are neither here nor there", layer));
    PLIMSOLL_CHECK(
        region->expert_first == on_device && region->slot_count == n_experts - on_device,
        fmt::format("layer {}: experts on the host are not those that the device lacks", layer));
    out.host_slots = host_.take(*region);
    place_experts(out, model_, layer, out.host_slots, on_device);
    const std::vector<ExpertPool>& pools = bound_.bindings.pools;
    while (out.pool < pools.size() && pools[out.pool].slot_bytes != out.slot_bytes) ++out.pool;
    PLIMSOLL_CHECK(out.pool < pools.size(),
                   fmt::format("no pool with slots of {} bytes", out.slot_bytes));
}

void Binder::bind_draft_head() {
    const Hyperparameters& hyper = model_.hyper;
    DraftHead out;
    const auto dense = take_dense(device_, *mtp_, RegionKind::mtp_dense, 0);
    const DenseWeights weights(dense_layout(*mtp_, RegionKind::mtp_dense, 0), dense.data());
    out.layer.weights = layer_weights(weights);
    out.layer.rope = rope_of(0);
    // The draft head's own file does not say; its experts are built as the last layer's.
    out.layer.swiglu_clamp = hyper.swiglu_clamp.back();
    const std::uint64_t ring_rows = window_ring_rows(hyper, grant_);
    out.layer.cache.window =
        kv_region(take_session(RegionKind::mtp_window, kNoLayer, kv_bytes(ring_rows)), ring_rows);
    LayerExperts& experts = out.layer.experts;
    experts.device_slots = device_.take(*device_.plan().find(RegionKind::mtp_experts, 0));
    place_experts(experts, *mtp_, 0, experts.device_slots, 0);
    experts.host_first = hyper.n_experts;
    experts.is_draft_head = true;
    out.head = {
        weights.matrix(TensorRole::mtp_hc_head_fn), weights.floats(TensorRole::mtp_hc_head_base),
        weights.floats(TensorRole::mtp_hc_head_scale), weights.floats(TensorRole::mtp_norm)};
    out.e_proj = weights.matrix(TensorRole::mtp_e_proj);
    out.h_proj = weights.matrix(TensorRole::mtp_h_proj);
    out.enorm = weights.floats(TensorRole::mtp_enorm);
    out.hnorm = weights.floats(TensorRole::mtp_hnorm);
    out.hidden = reinterpret_cast<float*>(
        take_session(RegionKind::mtp_hidden, kNoLayer,
                     std::uint64_t{hyper.n_streams} * hyper.hidden_size * sizeof(float))
            .data());
    bound_.bindings.draft_head.push_back(out);
}

void Binder::bind_workspace(const Schedule& schedule) {
    const DevicePlan& place = plan_.devices.front();
    const auto bytes = device_.take(RegionKind::workspace, kNoLayer, place.workspace_packed_bytes);
    bound_.bindings.workspace = bytes;
    PLIMSOLL_CHECK(schedule.buffers.size() == place.workspace.size(),
                   fmt::format("{} buffers are planned and {} are needed", place.workspace.size(),
                               schedule.buffers.size()));
    for (std::size_t at = 0; at < schedule.buffers.size(); ++at) {
        PLIMSOLL_CHECK(
            schedule.buffers[at].size_bytes == place.workspace[at].size_bytes,
            fmt::format("{} has {} bytes planned and needs {}", schedule.buffers[at].name,
                        place.workspace[at].size_bytes, schedule.buffers[at].size_bytes));
        PLIMSOLL_CHECK(
            place.workspace[at].offset_bytes + place.workspace[at].size_bytes <= bytes.size(),
            fmt::format("{} ends past the workspace", schedule.buffers[at].name));
    }
    for (std::size_t phase = 0; phase < kPhaseKindCount; ++phase)
        for (std::size_t role = 0; role < kBufferRoleCount; ++role) {
            const std::int32_t buffer = schedule.phases[phase].buffer[role];
            if (buffer < 0) continue;
            bound_.bindings.buffers[phase][role] =
                bytes.data() + place.workspace[static_cast<std::size_t>(buffer)].offset_bytes;
        }
}

/// A size that the kernels are built for.
struct Limit {
    const char* name;
    std::uint64_t value;
    std::uint64_t largest;
};

/// Gate and up read the same rows, so they take them in the same form.
Status check_gate_and_up(const Model& model, std::uint32_t layer) {
    constexpr std::pair<TensorRole, TensorRole> kPairs[] = {
        {TensorRole::ffn_gate_exps, TensorRole::ffn_up_exps},
        {TensorRole::ffn_gate_shexp, TensorRole::ffn_up_shexp}};
    for (const auto& [gate_role, up_role] : kPairs) {
        const Tensor& gate = *model.find(gate_role, static_cast<std::int32_t>(layer));
        const Tensor& up = *model.find(up_role, static_cast<std::int32_t>(layer));
        if (gate.type != up.type)
            return Error{
                ErrorKind::bad_file,
                fmt::format("{}: {} is {} and {} is {}; this engine needs one type", model.name,
                            gate.name, info_of(gate.type).name, up.name, info_of(up.type).name)};
    }
    return ok_status();
}

Status check_limits(const Model& model, const Model* mtp) {
    const Hyperparameters& hyper = model.hyper;
    constexpr std::uint64_t kExpertsMax = 1024;  // of the router's scratch
    const Limit limits[] = {
        {"head dim", hyper.head_dim, kernels::kHeadDimMax},
        {"indexer head dim", hyper.indexer_head_dim, kernels::kHeadDimMax},
        {"rope dim", hyper.rope_dim, kernels::kRopeDimMax},
        {"hyper-connection streams", hyper.n_streams, kernels::kStreamsMax},
        {"experts", hyper.n_experts, kExpertsMax},
        {"experts used", hyper.n_experts_used, kernels::kExpertsUsedMax},
        {"hyper-connection coefficients", std::uint64_t{hyper.n_streams} * (hyper.n_streams + 2),
         hyper.hidden_size},
    };
    for (const Limit& limit : limits)
        if (limit.value > limit.largest)
            return Error{ErrorKind::bad_file,
                         fmt::format("{}: {} is {}, and this engine is built for at most {}",
                                     model.name, limit.name, limit.value, limit.largest)};
    for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer)
        if (Status same = check_gate_and_up(model, layer); !same) return same;
    if (mtp != nullptr) return check_gate_and_up(*mtp, 0);
    return ok_status();
}

}  // namespace

Result<BoundModel> bind_model(const Plan& plan, const Schedule& schedule, const Model& model,
                              const Model* mtp, ArenaMemory& device, ArenaMemory& host) {
    PLIMSOLL_CHECK(plan.devices.size() == 1,
                   fmt::format("a plan of {} devices is not run here", plan.devices.size()));
    const Model* draft_head = plan.grant.mtp ? mtp : nullptr;
    if (const Status checked = check_limits(model, draft_head); !checked) return checked.error();
    return Binder(plan, model, draft_head, device, host).run(schedule);
}

}  // namespace plimsoll
