#include "planner/schedule.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <span>

#include "planner/check.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kFloatBytes = 4;
constexpr std::uint64_t kIdBytes = 4;

constexpr std::string_view kBufferRoleNames[] = {"token_ids",
                                                 "embedding_rows",
                                                 "streams",
                                                 "attn_in",
                                                 "attn_in_q16",
                                                 "attn_in_q16k",
                                                 "hc_coefficients",
                                                 "q_lora",
                                                 "q_lora_q16",
                                                 "q_lora_q16k",
                                                 "kv_rows",
                                                 "compressor_kv",
                                                 "compressor_gate",
                                                 "indexer_kv",
                                                 "indexer_gate",
                                                 "indexer_q",
                                                 "indexer_weights",
                                                 "indexer_scores",
                                                 "selected",
                                                 "selected_count",
                                                 "q",
                                                 "attn_out_q16",
                                                 "attn_out_q16k",
                                                 "attn_low",
                                                 "attn_low_q16",
                                                 "attn_low_q16k",
                                                 "sublayer_out",
                                                 "ffn_in",
                                                 "ffn_in_q16",
                                                 "ffn_in_q16k",
                                                 "router_logits",
                                                 "expert_ids",
                                                 "expert_weights",
                                                 "expert_offsets",
                                                 "expert_assignments",
                                                 "expert_mid",
                                                 "shared_mid",
                                                 "head_in",
                                                 "head_in_q16",
                                                 "head_in_q16k",
                                                 "mtp_streams",
                                                 "mtp_norms"};
static_assert(std::size(kBufferRoleNames) == kBufferRoleCount);

constexpr std::string_view kOpKindNames[] = {"embed",
                                             "hc_attn",
                                             "quantize_attn_in",
                                             "q_a",
                                             "kv",
                                             "compressor",
                                             "compress",
                                             "indexer_compressor",
                                             "indexer_compress",
                                             "indexer_query",
                                             "indexer_select",
                                             "quantize_q_lora",
                                             "q_b",
                                             "attention",
                                             "append_window",
                                             "quantize_attn_out",
                                             "output_a",
                                             "quantize_attn_low",
                                             "output_b",
                                             "hc_attn_merge",
                                             "hc_ffn",
                                             "router",
                                             "quantize_ffn_in",
                                             "experts",
                                             "shared_expert",
                                             "hc_ffn_merge",
                                             "head_mix",
                                             "quantize_head_in",
                                             "head",
                                             "mtp_input"};
static_assert(std::size(kOpKindNames) == static_cast<std::size_t>(OpKind::count));

constexpr std::string_view kPhaseKindNames[] = {"embed", "window_layer", "csa_layer", "hca_layer",
                                                "head",  "mtp_input",    "mtp_layer", "mtp_head"};
static_assert(std::size(kPhaseKindNames) == kPhaseKindCount);

/// Builds the op list of one device and, from first and last use, the lifetime of every buffer.
class Builder {
public:
    Builder(const Model& model, const Model* mtp, const ScheduleShape& shape)
        : model_(model), mtp_(mtp), shape_(shape), hyper_(model.hyper) {
        for (Phase& phase : schedule_.phases) phase.buffer.fill(-1);
    }

    Schedule build() {
        if (shape_.first_device) embed();
        for (const std::uint32_t ratio : {0u, 4u, 128u})
            if (has_layer(ratio)) layer(ratio);
        if (shape_.last_device) {
            head(PhaseKind::head, BufferRole::streams);
            if (mtp_ != nullptr) draft_head();
        }
        return std::move(schedule_);
    }

private:
    const Model& model_;
    const Model* mtp_;
    const ScheduleShape& shape_;
    const Hyperparameters& hyper_;
    Schedule schedule_;
    PhaseKind phase_ = PhaseKind::embed;

    [[nodiscard]] bool has_layer(std::uint32_t ratio) const {
        for (std::uint32_t layer = shape_.layer_first; layer < shape_.layer_last; ++layer)
            if (hyper_.compress_ratios[layer] == ratio) return true;
        return false;
    }

    Phase& begin(PhaseKind kind) {
        phase_ = kind;
        Phase& phase = schedule_.phases[static_cast<std::size_t>(kind)];
        phase.present = true;
        phase.first_op = phase.last_op = static_cast<std::uint32_t>(schedule_.ops.size());
        return phase;
    }

    void op(OpKind kind, std::vector<BufferRole> reads, std::vector<BufferRole> writes) {
        const auto index = static_cast<std::uint32_t>(schedule_.ops.size());
        const auto absent = [&](BufferRole role) { return bytes_of(role) == 0; };
        std::erase_if(reads, absent);
        std::erase_if(writes, absent);
        for (const BufferRole role : reads) use(role, index);
        for (const BufferRole role : writes) use(role, index);
        schedule_.ops.push_back({kind, std::move(reads), std::move(writes)});
        schedule_.phases[static_cast<std::size_t>(phase_)].last_op = index + 1;
    }

    /// The residual and the ids are one buffer for the whole step; every other buffer belongs to
    /// its phase.
    static bool spans_phases(BufferRole role) {
        return role == BufferRole::streams || role == BufferRole::token_ids ||
               role == BufferRole::mtp_streams;
    }

    void use(BufferRole role, std::uint32_t index) {
        const auto slot = static_cast<std::size_t>(role);
        std::int32_t& here = schedule_.phases[static_cast<std::size_t>(phase_)].buffer[slot];
        if (here < 0 && spans_phases(role))
            for (const Phase& other : schedule_.phases)
                if (other.buffer[slot] >= 0) here = other.buffer[slot];
        if (here < 0) {
            here = static_cast<std::int32_t>(schedule_.buffers.size());
            std::string name(buffer_role_name(role));
            if (!spans_phases(role)) name = std::string(phase_kind_name(phase_)) + "." + name;
            schedule_.buffers.push_back({.name = std::move(name),
                                         .size_bytes = bytes_of(role),
                                         .alignment_bytes = kTensorAlignmentBytes,
                                         .lifetime = {index, index + 1}});
        }
        schedule_.buffers[static_cast<std::size_t>(here)].lifetime.last_op = index + 1;
    }

    /// The tensors of a role that the phase's stretch serves: one a layer of its kind.
    template <class Visit>
    void for_each_weight(TensorRole role, Visit&& visit) const {
        const auto consider = [&](const Model& model, std::int32_t layer) {
            if (const Tensor* tensor = model.find(role, layer)) visit(*tensor);
        };
        if (phase_ == PhaseKind::mtp_layer) {
            consider(*mtp_, 0);
        } else if (phase_ == PhaseKind::head || phase_ == PhaseKind::mtp_head) {
            consider(model_, kNoLayer);
        } else {
            for (std::uint32_t layer = shape_.layer_first; layer < shape_.layer_last; ++layer)
                if (layer_phase(hyper_.compress_ratios[layer]) == phase_)
                    consider(model_, static_cast<std::int32_t>(layer));
        }
    }

    /// Largest quantised row that any layer of the phase needs for these weights, in blocks of 32
    /// or 256.
    [[nodiscard]] std::uint64_t quantized_bytes(std::initializer_list<TensorRole> weights,
                                                std::uint64_t n, bool blocks_of_256) const {
        if (!shape_.quantized_activations) return 0;
        std::uint64_t bytes = 0;
        for (const TensorRole role : weights)
            for_each_weight(role, [&](const Tensor& tensor) {
                const bool is_256 = info_of(tensor.type).block_elements == 256;
                if (is_256 == blocks_of_256)
                    bytes = std::max(bytes, quantized_row_bytes(tensor.type, n));
            });
        return bytes;
    }

    /// Whether any layer of the phase multiplies this weight with float32 rows.
    [[nodiscard]] bool takes_float32(TensorRole weight) const {
        bool takes = !shape_.quantized_activations;
        for_each_weight(weight, [&](const Tensor& tensor) {
            if (info_of(tensor.type).block_elements == 1) takes = true;
        });
        return takes;
    }

    /// Largest scratch that any layer of the phase needs behind this down weight.
    [[nodiscard]] std::uint64_t mid_bytes(TensorRole down, std::uint64_t n_assignments) const {
        std::uint64_t bytes = 0;
        for_each_weight(down, [&](const Tensor& tensor) {
            bytes = std::max(bytes, expert_mid_bytes(n_assignments, hyper_.expert_ff_dim,
                                                     tensor.type, shape_.quantized_activations));
        });
        return bytes;
    }

    [[nodiscard]] std::uint64_t compressor_lanes() const {
        return phase_ == PhaseKind::csa_layer ? 2 : 1;
    }

    [[nodiscard]] std::uint64_t bytes_of(BufferRole role) const {
        using R = BufferRole;
        using W = TensorRole;
        const Hyperparameters& h = hyper_;
        const std::uint64_t tokens = shape_.tokens;
        const std::uint64_t hidden = h.hidden_size;
        const std::uint64_t q_width = std::uint64_t{h.n_heads} * h.head_dim;
        const std::uint64_t low_width = std::uint64_t{h.n_output_groups} * h.output_lora_rank;
        const std::uint64_t streams_row = h.n_streams * hidden;
        const std::uint64_t assignments = tokens * h.n_experts_used;
        const auto floats = [&](std::uint64_t per_token) {
            return tokens * per_token * kFloatBytes;
        };
        const auto q = [&](std::initializer_list<W> weights, std::uint64_t n, bool of_256,
                           std::uint64_t rows) {
            return rows * quantized_bytes(weights, n, of_256);
        };
        const auto attn_q = [&](bool of_256) {
            return q({W::attn_q_a, W::attn_kv}, hidden, of_256, tokens);
        };
        const auto ffn_q = [&](bool of_256) {
            return q({W::ffn_gate_exps, W::ffn_gate_shexp, W::ffn_up_shexp}, hidden, of_256,
                     tokens);
        };
        switch (role) {
            case R::token_ids: return tokens * kIdBytes;
            case R::embedding_rows: return shape_.embedding_on_host ? tokens * hidden * 2 : 0;
            case R::streams:
                return (tokens + (mtp_ != nullptr ? 1 : 0)) * streams_row * kFloatBytes;
            case R::mtp_streams: return floats(streams_row);
            case R::mtp_norms: return floats((2 + h.n_streams) * hidden);
            case R::attn_in:
            case R::ffn_in:
            case R::sublayer_out: return floats(hidden);
            case R::attn_in_q16: return attn_q(false);
            case R::attn_in_q16k: return attn_q(true);
            case R::hc_coefficients: return floats(h.n_streams + h.n_streams * h.n_streams);
            case R::q_lora: return floats(h.q_lora_rank);
            case R::q_lora_q16: return q({W::attn_q_b}, h.q_lora_rank, false, tokens);
            case R::q_lora_q16k: return q({W::attn_q_b}, h.q_lora_rank, true, tokens);
            case R::kv_rows: return floats(h.head_dim);
            case R::compressor_kv:
            case R::compressor_gate: return floats(compressor_lanes() * h.head_dim);
            case R::indexer_kv:
            case R::indexer_gate: return floats(2ull * h.indexer_head_dim);
            case R::indexer_q: return floats(std::uint64_t{h.indexer_n_heads} * h.indexer_head_dim);
            case R::indexer_weights: return floats(h.indexer_n_heads);
            case R::indexer_scores: return indexer_scores_bytes(tokens, h.indexer_top_k);
            case R::selected: return tokens * h.indexer_top_k * kIdBytes;
            case R::selected_count: return tokens * kIdBytes;
            case R::q: return floats(q_width);
            case R::attn_out_q16: return q({W::attn_output_a}, q_width, false, tokens);
            case R::attn_out_q16k: return q({W::attn_output_a}, q_width, true, tokens);
            case R::attn_low: return floats(low_width);
            case R::attn_low_q16: return q({W::attn_output_b}, low_width, false, tokens);
            case R::attn_low_q16k: return q({W::attn_output_b}, low_width, true, tokens);
            case R::ffn_in_q16: return ffn_q(false);
            case R::ffn_in_q16k: return ffn_q(true);
            case R::router_logits: return floats(h.n_experts);
            case R::expert_ids: return assignments * kIdBytes;
            case R::expert_weights: return assignments * kFloatBytes;
            case R::expert_offsets: return (std::uint64_t{h.n_experts} + 1) * kIdBytes;
            case R::expert_assignments: return assignments * kIdBytes;
            case R::expert_mid: return mid_bytes(W::ffn_down_exps, assignments);
            case R::shared_mid: return mid_bytes(W::ffn_down_shexp, tokens);
            case R::head_in: return shape_.logits_rows * hidden * kFloatBytes;
            case R::head_in_q16: return q({W::output}, hidden, false, shape_.logits_rows);
            case R::head_in_q16k: return q({W::output}, hidden, true, shape_.logits_rows);
            case R::count: break;
        }
        PLIMSOLL_CHECK(false, "no size for this buffer role");
        return 0;
    }

    /// An op of the fast mode, left out where no weight of the phase wants quantised input.
    void quantize(OpKind kind, BufferRole from, BufferRole q16, BufferRole q16k) {
        if (bytes_of(q16) != 0 || bytes_of(q16k) != 0) op(kind, {from}, {q16, q16k});
    }

    void embed() {
        begin(PhaseKind::embed);
        op(OpKind::embed, {BufferRole::token_ids, BufferRole::embedding_rows},
           {BufferRole::streams});
    }

    void layer(std::uint32_t ratio) {
        begin(layer_phase(ratio));
        attention(ratio, BufferRole::streams);
        feed_forward(BufferRole::streams);
    }

    void attention(std::uint32_t ratio, BufferRole streams) {
        using R = BufferRole;
        op(OpKind::hc_attn, {streams}, {R::attn_in, R::hc_coefficients});
        quantize(OpKind::quantize_attn_in, R::attn_in, R::attn_in_q16, R::attn_in_q16k);
        op(OpKind::q_a, {R::attn_in, R::attn_in_q16, R::attn_in_q16k}, {R::q_lora});
        op(OpKind::kv, {R::attn_in, R::attn_in_q16, R::attn_in_q16k}, {R::kv_rows});
        if (ratio != 0) {
            op(OpKind::compressor, {R::attn_in}, {R::compressor_kv, R::compressor_gate});
            op(OpKind::compress, {R::compressor_kv, R::compressor_gate}, {});
        }
        if (ratio == 4) {
            op(OpKind::indexer_compressor, {R::attn_in}, {R::indexer_kv, R::indexer_gate});
            op(OpKind::indexer_compress, {R::indexer_kv, R::indexer_gate}, {});
            op(OpKind::indexer_query, {R::attn_in, R::q_lora}, {R::indexer_q, R::indexer_weights});
            op(OpKind::indexer_select, {R::indexer_q, R::indexer_weights},
               {R::selected, R::selected_count, R::indexer_scores});
        }
        quantize(OpKind::quantize_q_lora, R::q_lora, R::q_lora_q16, R::q_lora_q16k);
        op(OpKind::q_b, {R::q_lora, R::q_lora_q16, R::q_lora_q16k}, {R::q});
        std::vector<BufferRole> attention_reads = {R::q, R::kv_rows};
        if (ratio == 4)
            attention_reads.insert(attention_reads.end(), {R::selected, R::selected_count});
        op(OpKind::attention, std::move(attention_reads), {R::q});
        op(OpKind::append_window, {R::kv_rows}, {});
        quantize(OpKind::quantize_attn_out, R::q, R::attn_out_q16, R::attn_out_q16k);
        // Once quantised the float32 rows are dead, so they are no input of the product.
        std::vector<BufferRole> output_a_reads = {R::attn_out_q16, R::attn_out_q16k};
        if (takes_float32(TensorRole::attn_output_a)) output_a_reads.push_back(R::q);
        op(OpKind::output_a, std::move(output_a_reads), {R::attn_low});
        quantize(OpKind::quantize_attn_low, R::attn_low, R::attn_low_q16, R::attn_low_q16k);
        op(OpKind::output_b, {R::attn_low, R::attn_low_q16, R::attn_low_q16k}, {R::sublayer_out});
        op(OpKind::hc_attn_merge, {R::sublayer_out, R::hc_coefficients, streams}, {streams});
    }

    void feed_forward(BufferRole streams) {
        using R = BufferRole;
        op(OpKind::hc_ffn, {streams}, {R::ffn_in, R::hc_coefficients});
        op(OpKind::router, {R::ffn_in, R::token_ids},
           {R::router_logits, R::expert_ids, R::expert_weights, R::expert_offsets,
            R::expert_assignments});
        quantize(OpKind::quantize_ffn_in, R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k);
        op(OpKind::experts,
           {R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k, R::expert_ids, R::expert_weights,
            R::expert_offsets, R::expert_assignments},
           {R::sublayer_out, R::expert_mid});
        op(OpKind::shared_expert, {R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k, R::sublayer_out},
           {R::sublayer_out, R::shared_mid});
        op(OpKind::hc_ffn_merge, {R::sublayer_out, R::hc_coefficients, streams}, {streams});
    }

    void head(PhaseKind kind, BufferRole streams) {
        using R = BufferRole;
        begin(kind);
        op(OpKind::head_mix, {streams}, {R::head_in});
        quantize(OpKind::quantize_head_in, R::head_in, R::head_in_q16, R::head_in_q16k);
        // The streams stay until the head is through: where every position's logits are asked for,
        // this stretch runs again for each handful of rows.
        op(OpKind::head, {R::head_in, R::head_in_q16, R::head_in_q16k, streams}, {});
    }

    void draft_head() {
        begin(PhaseKind::mtp_input);
        op(OpKind::mtp_input, {BufferRole::streams, BufferRole::token_ids},
           {BufferRole::mtp_streams, BufferRole::mtp_norms});
        begin(PhaseKind::mtp_layer);
        attention(0, BufferRole::mtp_streams);
        feed_forward(BufferRole::mtp_streams);
        head(PhaseKind::mtp_head, BufferRole::mtp_streams);
    }
};

}  // namespace

std::string_view buffer_role_name(BufferRole role) {
    return kBufferRoleNames[static_cast<std::size_t>(role)];
}
std::string_view op_kind_name(OpKind kind) { return kOpKindNames[static_cast<std::size_t>(kind)]; }
std::string_view phase_kind_name(PhaseKind kind) {
    return kPhaseKindNames[static_cast<std::size_t>(kind)];
}

std::uint64_t quantized_row_bytes(TensorType weight, std::uint64_t n) {
    switch (info_of(weight).block_elements) {
        case 32: return n / 32 * (4 + 32 * 2);
        case 256: return n / 256 * (4 + 256 * 2 + 16 * 4);
        default: return 0;
    }
}

std::uint64_t expert_mid_bytes(std::uint64_t n_assignments, std::uint64_t ff_dim, TensorType down,
                               bool quantized_activations) {
    const std::uint64_t quantized = quantized_activations ? quantized_row_bytes(down, ff_dim) : 0;
    return n_assignments * (ff_dim * kFloatBytes + quantized);
}

std::uint64_t indexer_scores_bytes(std::uint64_t tokens, std::uint64_t top_k) {
    constexpr std::uint64_t kTokensAtOnce = 64;
    constexpr std::uint64_t kRowTile = 1024;
    const std::uint64_t rows = std::min(tokens, kTokensAtOnce);
    return rows * (kRowTile + top_k) * kFloatBytes;
}

Schedule build_schedule(const Model& model, const Model* mtp, const ScheduleShape& shape) {
    return Builder(model, mtp, shape).build();
}

}  // namespace plimsoll
