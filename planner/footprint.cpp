#include "planner/footprint.hpp"

#include <algorithm>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// Loads and NVMe reads pass through this much pinned memory: enough reads in flight to fill a
/// drive or a PCIe link, and small beside any model.
constexpr std::uint64_t kStagingRingBytes = 64 * kMiB;

std::uint64_t aligned(std::uint64_t bytes) { return align_up(bytes, kTensorAlignmentBytes); }

RegionSpec plain(RegionKind kind, std::uint64_t bytes, std::int32_t layer = kNoLayer) {
    return {.kind = kind, .layer = layer, .size_bytes = aligned(bytes)};
}

RegionSpec array(RegionKind kind, std::uint64_t slot_bytes, std::uint64_t slot_count,
                 std::int32_t layer = kNoLayer) {
    const std::uint64_t slot = aligned(slot_bytes);
    return {.kind = kind,
            .layer = layer,
            .size_bytes = slot * slot_count,
            .slot_bytes = slot,
            .slot_count = slot_count};
}

std::int32_t signed_layer(std::uint32_t layer) { return static_cast<std::int32_t>(layer); }

}  // namespace

RegionClass class_of(RegionKind kind) {
    switch (kind) {
        case RegionKind::layer_dense:
        case RegionKind::head_dense:
        case RegionKind::head_output: return RegionClass::dense_weights;
        case RegionKind::embedding: return RegionClass::embedding;
        case RegionKind::layer_experts:
        case RegionKind::expert_pool: return RegionClass::expert_weights;
        case RegionKind::kv_window:
        case RegionKind::kv_rows:
        case RegionKind::kv_index:
        case RegionKind::kv_state:
        case RegionKind::kv_index_state: return RegionClass::kv;
        case RegionKind::layer_fp16: return RegionClass::fp16_cache;
        case RegionKind::workspace: return RegionClass::workspace;
        case RegionKind::gemm_workspace: return RegionClass::gemm_workspace;
        case RegionKind::logits: return RegionClass::logits;
        case RegionKind::staging_dense:
        case RegionKind::staging_head:
        case RegionKind::staging_peer:
        case RegionKind::staging_ring: return RegionClass::staging;
        case RegionKind::mtp_dense:
        case RegionKind::mtp_experts: return RegionClass::mtp_weights;
        case RegionKind::mtp_window:
        case RegionKind::mtp_hidden: return RegionClass::mtp_cache;
        case RegionKind::count: break;
    }
    return RegionClass::count;
}

Footprint::Footprint(const Model& model, const Model* mtp, const MachineFacts& machine)
    : model_(model), mtp_(mtp), machine_(machine) {
    const std::uint32_t n_layers = model.hyper.n_layers;
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
        const std::int32_t index = signed_layer(layer);
        dense_bytes_.push_back(dense_bytes(model, RegionKind::layer_dense, index));
        slot_bytes_.push_back(expert_size(model, index).slot_bytes);
        std::vector<Fp16Candidate> candidates;
        for (const TensorRole role : fp16_candidates(model, index))
            candidates.push_back({index, role, fp16_tensor_bytes(*model.find(role, index))});
        fp16_.push_back(std::move(candidates));
    }
    embedding_bytes_ = dense_bytes(model, RegionKind::embedding);
    head_dense_bytes_ = dense_bytes(model, RegionKind::head_dense);
    head_output_bytes_ = dense_bytes(model, RegionKind::head_output);
    if (mtp != nullptr) {
        mtp_dense_bytes_ = dense_bytes(*mtp, RegionKind::mtp_dense);
        mtp_slot_bytes_ = expert_size(*mtp, 0).slot_bytes;
    }
}

std::uint64_t Footprint::experts_total() const {
    return std::uint64_t{model_.hyper.n_layers} * model_.hyper.n_experts;
}

std::uint64_t Footprint::experts_of(const DeviceShare& share) const {
    return std::uint64_t{share.layer_last - share.layer_first} * model_.hyper.n_experts;
}

std::vector<Fp16Candidate> Footprint::fp16_candidates_of(const DeviceShare& share) const {
    std::vector<Fp16Candidate> out;
    for (std::uint32_t layer = share.layer_first; layer < share.layer_last; ++layer)
        out.insert(out.end(), fp16_[layer].begin(), fp16_[layer].end());
    return out;
}

/// Deals `count` experts over layers as evenly as `room` allows. Layers routed by a table come
/// last: their experts are known from the token ids alone, so they are the cheapest to fetch.
void Footprint::spread(std::uint64_t count, std::uint32_t layer_first, std::uint32_t layer_last,
                       const std::vector<std::uint64_t>& room,
                       std::vector<std::uint64_t>& out) const {
    const std::uint32_t n_hash = std::clamp(model_.hyper.n_hash_layers, layer_first, layer_last);
    const std::pair<std::uint32_t, std::uint32_t> groups[] = {{n_hash, layer_last},
                                                              {layer_first, n_hash}};
    for (const auto& group : groups) {
        const std::uint32_t first = group.first, last = group.second;
        std::uint64_t level_low = 0, level_high = 0, group_room = 0;
        for (std::uint32_t layer = first; layer < last; ++layer) {
            level_high = std::max(level_high, room[layer]);
            group_room += room[layer];
        }
        const std::uint64_t wanted = std::min(count, group_room);
        const auto dealt = [&](std::uint64_t level) {
            std::uint64_t sum = 0;
            for (std::uint32_t layer = first; layer < last; ++layer)
                sum += std::min(room[layer], level);
            return sum;
        };
        while (level_low < level_high) {
            const std::uint64_t middle = level_low + (level_high - level_low + 1) / 2;
            if (dealt(middle) <= wanted)
                level_low = middle;
            else
                level_high = middle - 1;
        }
        std::uint64_t left = wanted - dealt(level_low);
        for (std::uint32_t layer = last; layer-- > first;) {
            const bool one_more = left > 0 && room[layer] > level_low;
            out[layer] = std::min(room[layer], level_low) + (one_more ? 1 : 0);
            if (one_more) --left;
        }
        count -= wanted;
    }
}

Footprint::ExpertSplit Footprint::expert_split(const Division& division) const {
    const std::uint32_t n_layers = model_.hyper.n_layers;
    ExpertSplit split{std::vector<std::uint64_t>(n_layers), std::vector<std::uint64_t>(n_layers)};
    std::vector<std::uint64_t> room(n_layers, model_.hyper.n_experts);
    for (const DeviceShare& share : division.devices)
        spread(share.experts, share.layer_first, share.layer_last, room, split.device);
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) room[layer] -= split.device[layer];
    spread(division.host_experts, 0, n_layers, room, split.host);
    return split;
}

template <class Sink>
void Footprint::visit_experts(const Division& division, const DeviceShare& share,
                              Sink&& sink) const {
    std::vector<std::uint64_t> room(model_.hyper.n_layers, model_.hyper.n_experts);
    std::vector<std::uint64_t> here(model_.hyper.n_layers);
    spread(share.experts, share.layer_first, share.layer_last, room, here);
    std::map<std::uint64_t, std::uint64_t> streamed;  // slot bytes -> experts elsewhere
    for (std::uint32_t layer = share.layer_first; layer < share.layer_last; ++layer) {
        if (here[layer] != 0)
            sink(array(RegionKind::layer_experts, slot_bytes_[layer], here[layer],
                       signed_layer(layer)));
        if (here[layer] != room[layer]) streamed[slot_bytes_[layer]] += room[layer] - here[layer];
    }
    const std::uint64_t floor_slots = expert_floor_slots(model_.hyper, division.grant.drafts);
    for (const auto& [bytes, count] : streamed)
        sink(array(RegionKind::expert_pool, bytes, std::min(floor_slots, count)));
}

template <class Sink>
void Footprint::visit_kv(const Grant& grant, std::uint32_t layer, Sink&& sink) const {
    const Hyperparameters& hyper = model_.hyper;
    const std::uint32_t ratio = hyper.compress_ratios[layer];
    const auto rows_region = [&](RegionKind kind, std::uint64_t rows) {
        sink(array(kind, kv_rows_bytes(grant.kv_format, rows, hyper.head_dim, hyper.rope_dim),
                   grant.sessions, signed_layer(layer)));
    };
    rows_region(RegionKind::kv_window, window_ring_rows(hyper, grant));
    if (ratio == 0) return;
    rows_region(RegionKind::kv_rows, compressed_rows(grant, ratio));
    sink(array(RegionKind::kv_state, compressor_state_bytes(ratio, hyper.head_dim), grant.sessions,
               signed_layer(layer)));
    if (ratio != 4) return;
    sink(array(
        RegionKind::kv_index,
        indexer_rows_bytes(grant.kv_format, compressed_rows(grant, ratio), hyper.indexer_head_dim),
        grant.sessions, signed_layer(layer)));
    sink(array(RegionKind::kv_index_state, compressor_state_bytes(ratio, hyper.indexer_head_dim),
               grant.sessions, signed_layer(layer)));
}

template <class Sink>
void Footprint::visit_mtp(const Grant& grant, Sink&& sink) const {
    const Hyperparameters& hyper = model_.hyper;
    sink(plain(RegionKind::mtp_dense, mtp_dense_bytes_));
    sink(array(RegionKind::mtp_experts, mtp_slot_bytes_, hyper.n_experts, 0));
    sink(array(RegionKind::mtp_window,
               kv_rows_bytes(grant.kv_format, window_ring_rows(hyper, grant), hyper.head_dim,
                             hyper.rope_dim),
               grant.sessions));
    sink(array(RegionKind::mtp_hidden,
               std::uint64_t{hyper.n_streams} * hyper.hidden_size * sizeof(float), grant.sessions));
}

template <class Sink>
void Footprint::visit_device(const Division& division, std::size_t device, Sink&& sink) const {
    const Grant& grant = division.grant;
    const Hyperparameters& hyper = model_.hyper;
    const DeviceShare& share = division.devices[device];
    const DeviceFacts& facts = machine_.devices[device];
    const bool first = device == 0;
    const bool last = device + 1 == division.devices.size();

    if (first && !grant.embedding_on_host) sink(plain(RegionKind::embedding, embedding_bytes_));
    std::uint64_t streamed_bytes_max = 0;
    for (std::uint32_t layer = share.layer_first; layer < share.layer_last; ++layer) {
        if (layer < grant.dense_streamed_layers)
            streamed_bytes_max = std::max(streamed_bytes_max, dense_bytes_[layer]);
        else
            sink(plain(RegionKind::layer_dense, dense_bytes_[layer], signed_layer(layer)));
    }
    if (last) {
        sink(plain(RegionKind::head_dense, head_dense_bytes_));
        if (!grant.head_streamed) sink(plain(RegionKind::head_output, head_output_bytes_));
    }
    visit_experts(division, share, sink);
    for (std::uint32_t layer = share.layer_first; layer < share.layer_last; ++layer)
        visit_kv(grant, layer, sink);
    if (last && grant.mtp) visit_mtp(grant, sink);

    std::uint64_t fp16_left = share.fp16_tensors;
    for (std::uint32_t layer = share.layer_first; layer < share.layer_last && fp16_left > 0;
         ++layer) {
        const auto count =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(fp16_left, fp16_[layer].size()));
        fp16_left -= count;
        std::uint64_t bytes = 0;
        for (std::uint32_t index = 0; index < count; ++index)
            bytes += fp16_[layer][index].size_bytes;
        if (count == 0) continue;
        RegionSpec spec = plain(RegionKind::layer_fp16, bytes, signed_layer(layer));
        spec.tensor_count = count;
        sink(spec);
    }

    sink(plain(RegionKind::workspace, packed_schedule(division, device).packing.packed_bytes));
    if (facts.gemm_workspace_bytes != 0)
        sink(plain(RegionKind::gemm_workspace, facts.gemm_workspace_bytes));
    if (last)
        sink(array(RegionKind::logits, (1 + grant.drafts) * hyper.vocab_size * sizeof(float),
                   grant.sessions));
    if (streamed_bytes_max != 0) sink(plain(RegionKind::staging_dense, streamed_bytes_max));
    if (last && grant.head_streamed) {
        const Tensor& output = *model_.find(TensorRole::output);
        sink(plain(RegionKind::staging_head,
                   output.size_bytes / output.dims[1] * head_tile_rows(model_)));
    }
    if (!first)
        sink(plain(RegionKind::staging_peer,
                   grant.chunk_tokens * hyper.n_streams * hyper.hidden_size * sizeof(float)));
}

template <class Sink>
void Footprint::visit_host(const Division& division, Sink&& sink) const {
    const Grant& grant = division.grant;
    const Hyperparameters& hyper = model_.hyper;
    if (grant.embedding_on_host) sink(plain(RegionKind::embedding, embedding_bytes_));
    for (std::uint32_t layer = 0; layer < grant.dense_streamed_layers; ++layer)
        sink(plain(RegionKind::layer_dense, dense_bytes_[layer], signed_layer(layer)));
    if (grant.head_streamed) sink(plain(RegionKind::head_output, head_output_bytes_));
    if (!machine_.is_cpu() && !machine_.unified_memory)
        sink(plain(RegionKind::staging_ring, kStagingRingBytes));
    if (division.host_experts == 0) return;
    const ExpertSplit split = expert_split(division);
    for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer) {
        if (split.host[layer] == 0) continue;
        RegionSpec spec = array(RegionKind::layer_experts, slot_bytes_[layer], split.host[layer],
                                signed_layer(layer));
        spec.expert_first = static_cast<std::uint32_t>(split.device[layer]);
        sink(spec);
    }
}

std::vector<RegionSpec> Footprint::device_regions(const Division& division,
                                                  std::size_t device) const {
    std::vector<RegionSpec> out;
    visit_device(division, device, [&](const RegionSpec& spec) { out.push_back(spec); });
    return out;
}

std::vector<RegionSpec> Footprint::host_regions(const Division& division) const {
    std::vector<RegionSpec> out;
    visit_host(division, [&](const RegionSpec& spec) { out.push_back(spec); });
    return out;
}

std::uint64_t Footprint::device_bytes(const Division& division, std::size_t device) const {
    std::uint64_t sum = 0;
    visit_device(division, device, [&](const RegionSpec& spec) { sum += spec.size_bytes; });
    return sum;
}

std::uint64_t Footprint::device_expert_bytes(const Division& division, std::size_t device) const {
    std::uint64_t sum = 0;
    visit_experts(division, division.devices[device],
                  [&](const RegionSpec& spec) { sum += spec.size_bytes; });
    return sum;
}

std::uint64_t Footprint::host_bytes(const Division& division) const {
    std::uint64_t sum = 0;
    visit_host(division, [&](const RegionSpec& spec) { sum += spec.size_bytes; });
    return sum;
}

std::uint64_t Footprint::pinned_bytes(const Division& division) const {
    if (machine_.is_cpu()) return 0;
    std::uint64_t sum = 0;
    visit_host(division, [&](const RegionSpec& spec) { sum += spec.size_bytes; });
    return sum;
}

const Footprint::PackedSchedule& Footprint::packed_schedule(const Division& division,
                                                            std::size_t device) const {
    const Grant& grant = division.grant;
    const DeviceShare& share = division.devices[device];
    const ShapeKey key{
        grant.context_tokens, grant.chunk_tokens, grant.drafts, grant.mtp, grant.precise, device,
        share.layer_first,    share.layer_last};
    if (const auto at = packed_.find(key); at != packed_.end()) return at->second;
    const ScheduleShape shape{.is_gpu = !machine_.is_cpu(),
                              .context_tokens = grant.context_tokens,
                              .tokens = std::max(grant.chunk_tokens, 1 + grant.drafts),
                              .logits_rows = 1 + grant.drafts,
                              .quantized_activations = !grant.precise,
                              .first_device = device == 0,
                              .last_device = device + 1 == division.devices.size(),
                              .layer_first = share.layer_first,
                              .layer_last = share.layer_last};
    PackedSchedule packed;
    packed.schedule = build_schedule(model_, grant.mtp ? mtp_ : nullptr, shape);
    packed.packing = pack(packed.schedule.buffers);
    return packed_.emplace(key, std::move(packed)).first->second;
}

}  // namespace plimsoll
