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
        if (is_f16()) decode_step();
        // Written before the first op and read until the last one.
        if (shape_.is_gpu) hold_throughout(BufferRole::step_state);
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

    /// The residual and the ids are one buffer for the whole step, as is what one launch of a
    /// decode step leaves for the next layer's; every other buffer belongs to its phase.
    static bool spans_phases(BufferRole role) {
        using R = BufferRole;
        return role == R::streams || role == R::token_ids || role == R::mtp_streams ||
               role == R::step_state || role == R::decode_coefficients ||
               role == R::decode_sublayer_out || role == R::hc_sums || role == R::next_token;
    }

    void hold_throughout(BufferRole role) {
        const auto last = static_cast<std::uint32_t>(schedule_.ops.size() - 1);
        for (std::size_t kind = 0; kind < kPhaseKindCount; ++kind) {
            if (!schedule_.phases[kind].present) continue;
            phase_ = static_cast<PhaseKind>(kind);
            use(role, last);
        }
        schedule_
            .buffers[static_cast<std::size_t>(
                schedule_.phase(phase_).buffer[static_cast<std::size_t>(role)])]
            .lifetime.first_op = 0;
    }

    /// Whether chunks' rows are kept in float16: the GPU's fast mode.
    [[nodiscard]] bool is_f16() const { return shape_.is_gpu && shape_.quantized_activations; }
    [[nodiscard]] bool is_decode() const {
        return phase_ >= PhaseKind::decode_embed && phase_ <= PhaseKind::decode_head;
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
        } else if (phase_ == PhaseKind::head || phase_ == PhaseKind::mtp_head ||
                   phase_ == PhaseKind::decode_head) {
            consider(model_, kNoLayer);
        } else {
            for (std::uint32_t layer = shape_.layer_first; layer < shape_.layer_last; ++layer)
                if (layer_phase(hyper_.compress_ratios[layer]) == phase_ ||
                    decode_layer_phase(hyper_.compress_ratios[layer]) == phase_)
                    consider(model_, static_cast<std::int32_t>(layer));
        }
    }

    /// Largest quantised row that any layer of the phase needs for these weights, in blocks of 32
    /// or 256.
    [[nodiscard]] std::uint64_t quantized_bytes(std::initializer_list<TensorRole> weights,
                                                std::uint64_t n, bool blocks_of_256) const {
        if (!shape_.quantized_activations || shape_.is_gpu) return 0;
        std::uint64_t bytes = 0;
        for (const TensorRole role : weights)
            for_each_weight(role, [&](const Tensor& tensor) {
                const bool is_256 = info_of(tensor.type).block_elements == 256;
                if (is_256 == blocks_of_256)
                    bytes = std::max(bytes, quantized_row_bytes(tensor.type, n));
            });
        return bytes;
    }

    [[nodiscard]] bool any_plain(TensorRole weight) const {
        bool any = false;
        for_each_weight(weight, [&](const Tensor& tensor) {
            if (info_of(tensor.type).block_elements == 1) any = true;
        });
        return any;
    }

    /// Whether any layer of the phase multiplies this weight with float32 rows. A GPU's attention
    /// leaves float16 rows alone.
    [[nodiscard]] bool takes_float32(TensorRole weight) const {
        return !shape_.quantized_activations || (!shape_.is_gpu && any_plain(weight));
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
        return phase_ == PhaseKind::csa_layer || phase_ == PhaseKind::decode_csa_layer ? 2 : 1;
    }

    [[nodiscard]] std::uint64_t expert_scratch_bytes(TensorRole down, std::uint64_t tokens,
                                                     bool is_shared) const {
        const std::uint64_t assignments = is_shared ? tokens : tokens * hyper_.n_experts_used;
        // Of one token the routed and the shared experts' inner rows lie together, in float32.
        if (is_decode())
            return is_shared ? 0 : (assignments + 1) * hyper_.expert_ff_dim * kFloatBytes;
        if (shape_.is_gpu)
            return gpu::expert_mid_bytes(assignments, hyper_.hidden_size, hyper_.expert_ff_dim,
                                         is_shared,
                                         !shape_.quantized_activations || any_plain(down));
        return mid_bytes(down, assignments);
    }

    /// Compressed rows of a layer of this ratio, as the cache holds them.
    [[nodiscard]] std::uint64_t compressed_capacity(std::uint64_t ratio) const {
        return shape_.context_tokens / ratio + 2;
    }

    [[nodiscard]] std::uint64_t index_scores_bytes(std::uint64_t tokens) const {
        return shape_.is_gpu ? gpu::indexer_scores_bytes(tokens, compressed_capacity(4))
                             : indexer_scores_bytes(tokens, hyper_.indexer_top_k);
    }

    /// The most rows a token of a decode phase attends to.
    [[nodiscard]] std::uint64_t attended_rows_max() const {
        std::uint64_t rows = hyper_.sliding_window_tokens;
        if (phase_ == PhaseKind::decode_csa_layer) rows += hyper_.indexer_top_k;
        if (phase_ == PhaseKind::decode_hca_layer) rows += compressed_capacity(128);
        return rows;
    }

    /// Roles that only a GPU's schedule has.
    [[nodiscard]] std::uint64_t gpu_bytes_of(BufferRole role, std::uint64_t tokens) const {
        using R = BufferRole;
        const Hyperparameters& h = hyper_;
        const auto halves = [&](std::uint64_t rows, std::uint64_t row) {
            return is_f16() ? rows * row * 2 : 0;
        };
        const std::uint64_t q_width = std::uint64_t{h.n_heads} * h.head_dim;
        switch (role) {
            case R::step_state: return gpu::kStepStateBytes;
            case R::attn_in_f16:
            case R::ffn_in_f16: return halves(tokens, h.hidden_size);
            case R::q_lora_f16: return halves(tokens, h.q_lora_rank);
            case R::attn_out_f16: return halves(tokens, q_width);
            case R::attn_low_f16:
                return halves(tokens, std::uint64_t{h.n_output_groups} * h.output_lora_rank);
            case R::head_in_f16: return halves(shape_.logits_rows, h.hidden_size);
            case R::expert_tiles:
                return gpu::expert_tiles_bytes(tokens * h.n_experts_used, h.n_experts);
            case R::attn_out: return q_width * kFloatBytes;
            case R::attn_partials:
                return gpu::attn_partials_bytes(h.n_heads, h.head_dim, attended_rows_max());
            case R::hc_sums: return gpu::hc_sums_bytes(h.n_streams);
            case R::decode_coefficients:
                return (h.n_streams + h.n_streams * h.n_streams) * kFloatBytes;
            case R::decode_sublayer_out: return h.hidden_size * kFloatBytes;
            case R::next_token: return kIdBytes;
            default: return 0;
        }
    }

    [[nodiscard]] std::uint64_t bytes_of(BufferRole role) const {
        using R = BufferRole;
        using W = TensorRole;
        const Hyperparameters& h = hyper_;
        const std::uint64_t tokens = is_decode() ? 1 : shape_.tokens;
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
            case R::token_ids: return shape_.tokens * kIdBytes;
            case R::streams:
                return (shape_.tokens + (mtp_ != nullptr ? 1 : 0)) * streams_row * kFloatBytes;
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
            case R::indexer_scores: return index_scores_bytes(tokens);
            case R::selected: return tokens * h.indexer_top_k * kIdBytes;
            case R::selected_count: return tokens * kIdBytes;
            case R::q: return is_f16() && !is_decode() ? tokens * q_width * 2 : floats(q_width);
            case R::attn_out_q16: return q({W::attn_output_a}, q_width, false, tokens);
            case R::attn_out_q16k: return q({W::attn_output_a}, q_width, true, tokens);
            case R::attn_low: return is_f16() && !is_decode() ? 0 : floats(low_width);
            case R::attn_low_q16: return q({W::attn_output_b}, low_width, false, tokens);
            case R::attn_low_q16k: return q({W::attn_output_b}, low_width, true, tokens);
            case R::ffn_in_q16: return ffn_q(false);
            case R::ffn_in_q16k: return ffn_q(true);
            case R::router_logits: return floats(h.n_experts);
            case R::expert_ids: return assignments * kIdBytes;
            case R::expert_weights: return assignments * kFloatBytes;
            case R::expert_offsets: return (std::uint64_t{h.n_experts} + 1) * kIdBytes;
            case R::expert_assignments: return assignments * kIdBytes;
            case R::expert_mid: return expert_scratch_bytes(W::ffn_down_exps, tokens, false);
            case R::shared_mid: return expert_scratch_bytes(W::ffn_down_shexp, tokens, true);
            case R::head_in: return (is_decode() ? 1 : shape_.logits_rows) * hidden * kFloatBytes;
            case R::head_in_q16: return q({W::output}, hidden, false, shape_.logits_rows);
            case R::head_in_q16k: return q({W::output}, hidden, true, shape_.logits_rows);
            default: return shape_.is_gpu ? gpu_bytes_of(role, tokens) : 0;
        }
    }

    /// An op of the fast mode, left out where no weight of the phase wants quantised input.
    void quantize(OpKind kind, BufferRole from, BufferRole q16, BufferRole q16k) {
        if (bytes_of(q16) != 0 || bytes_of(q16k) != 0) op(kind, {from}, {q16, q16k});
    }

    void embed() {
        begin(PhaseKind::embed);
        op(OpKind::embed, {BufferRole::token_ids}, {BufferRole::streams});
    }

    void layer(std::uint32_t ratio) {
        begin(layer_phase(ratio));
        attention(ratio, BufferRole::streams);
        feed_forward(BufferRole::streams);
    }

    void attention(std::uint32_t ratio, BufferRole streams) {
        using R = BufferRole;
        op(OpKind::hc_attn, {streams}, {R::attn_in, R::attn_in_f16, R::hc_coefficients});
        quantize(OpKind::quantize_attn_in, R::attn_in, R::attn_in_q16, R::attn_in_q16k);
        op(OpKind::q_a, {R::attn_in, R::attn_in_q16, R::attn_in_q16k, R::attn_in_f16},
           {R::q_lora, R::q_lora_f16});
        op(OpKind::kv, {R::attn_in, R::attn_in_q16, R::attn_in_q16k, R::attn_in_f16}, {R::kv_rows});
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
        op(OpKind::q_b, {R::q_lora, R::q_lora_q16, R::q_lora_q16k, R::q_lora_f16}, {R::q});
        std::vector<BufferRole> attention_reads = {R::q, R::kv_rows};
        if (ratio == 4)
            attention_reads.insert(attention_reads.end(), {R::selected, R::selected_count});
        op(OpKind::attention, std::move(attention_reads), {is_f16() ? R::attn_out_f16 : R::q});
        op(OpKind::append_window, {R::kv_rows}, {});
        quantize(OpKind::quantize_attn_out, R::q, R::attn_out_q16, R::attn_out_q16k);
        // Once quantised the float32 rows are dead, so they are no input of the product.
        std::vector<BufferRole> output_a_reads = {R::attn_out_q16, R::attn_out_q16k,
                                                  R::attn_out_f16};
        if (takes_float32(TensorRole::attn_output_a)) output_a_reads.push_back(R::q);
        op(OpKind::output_a, std::move(output_a_reads), {R::attn_low, R::attn_low_f16});
        quantize(OpKind::quantize_attn_low, R::attn_low, R::attn_low_q16, R::attn_low_q16k);
        op(OpKind::output_b, {R::attn_low, R::attn_low_q16, R::attn_low_q16k, R::attn_low_f16},
           {R::sublayer_out});
        op(OpKind::hc_attn_merge, {R::sublayer_out, R::hc_coefficients, streams}, {streams});
    }

    void feed_forward(BufferRole streams) {
        using R = BufferRole;
        op(OpKind::hc_ffn, {streams}, {R::ffn_in, R::ffn_in_f16, R::hc_coefficients});
        op(OpKind::router, {R::ffn_in, R::token_ids},
           {R::router_logits, R::expert_ids, R::expert_weights, R::expert_offsets,
            R::expert_assignments, R::expert_tiles});
        quantize(OpKind::quantize_ffn_in, R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k);
        op(OpKind::experts,
           {R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k, R::ffn_in_f16, R::expert_ids,
            R::expert_weights, R::expert_offsets, R::expert_assignments, R::expert_tiles},
           {R::sublayer_out, R::expert_mid});
        op(OpKind::shared_expert,
           {R::ffn_in, R::ffn_in_q16, R::ffn_in_q16k, R::ffn_in_f16, R::sublayer_out},
           {R::sublayer_out, R::shared_mid});
        op(OpKind::hc_ffn_merge, {R::sublayer_out, R::hc_coefficients, streams}, {streams});
    }

    void head(PhaseKind kind, BufferRole streams) {
        using R = BufferRole;
        begin(kind);
        op(OpKind::head_mix, {streams}, {R::head_in, R::head_in_f16});
        quantize(OpKind::quantize_head_in, R::head_in, R::head_in_q16, R::head_in_q16k);
        // The streams stay until the head is through: where every position's logits are asked for,
        // this stretch runs again for each handful of rows.
        op(OpKind::head, {R::head_in, R::head_in_q16, R::head_in_q16k, R::head_in_f16, streams},
           {});
    }

    /// One token in fused launches. A merge is the last thing of the launch that makes a
    /// sub-layer's output, but for the last layer's; a mix is the first thing of the launch behind.
    void decode_step() {
        using R = BufferRole;
        if (shape_.first_device) {
            begin(PhaseKind::decode_embed);
            op(OpKind::decode_embed, {}, {R::streams});
            op(OpKind::decode_hc_start, {R::streams}, {R::hc_sums});
        }
        for (const std::uint32_t ratio : {0u, 4u, 128u}) {
            if (!has_layer(ratio)) continue;
            begin(decode_layer_phase(ratio));
            decode_attention(ratio);
            decode_feed_forward();
        }
        if (!shape_.last_device) return;
        begin(PhaseKind::decode_head);
        op(OpKind::decode_merge, {R::decode_sublayer_out, R::decode_coefficients, R::streams},
           {R::streams});
        op(OpKind::head_mix, {R::streams}, {R::head_in});
        op(OpKind::decode_head, {R::head_in}, {});
        op(OpKind::decode_choose, {}, {R::next_token});
    }

    void decode_attention(std::uint32_t ratio) {
        using R = BufferRole;
        std::vector<R> rows = {R::kv_rows};
        if (ratio != 0) rows.insert(rows.end(), {R::compressor_kv, R::compressor_gate});
        if (ratio == 4) rows.insert(rows.end(), {R::indexer_kv, R::indexer_gate});
        std::vector<R> projected = rows;
        projected.insert(projected.end(), {R::q_lora, R::attn_in, R::decode_coefficients});
        op(OpKind::decode_attn_products, {R::streams, R::hc_sums}, std::move(projected));
        std::vector<R> attention_reads = {R::q};
        std::vector<R> q_reads = std::move(rows);
        q_reads.push_back(R::q_lora);
        if (ratio == 4) {
            q_reads.push_back(R::attn_in);
            op(OpKind::decode_q_products, std::move(q_reads),
               {R::q, R::indexer_q, R::indexer_weights});
            op(OpKind::decode_indexer_select, {R::indexer_q, R::indexer_weights},
               {R::indexer_scores, R::selected, R::selected_count});
            attention_reads.insert(attention_reads.end(), {R::selected, R::selected_count});
        } else {
            op(OpKind::decode_q_products, std::move(q_reads), {R::q});
        }
        op(OpKind::decode_attention, std::move(attention_reads), {R::attn_out, R::attn_partials});
        op(OpKind::decode_output_a, {R::attn_out}, {R::attn_low});
        op(OpKind::decode_output_b, {R::attn_low, R::decode_coefficients, R::streams},
           {R::streams, R::hc_sums});
    }

    void decode_feed_forward() {
        using R = BufferRole;
        op(OpKind::decode_router_products, {R::streams, R::hc_sums},
           {R::router_logits, R::expert_mid, R::ffn_in, R::decode_coefficients});
        op(OpKind::decode_experts_up, {R::ffn_in, R::router_logits},
           {R::expert_ids, R::expert_weights, R::expert_mid});
        op(OpKind::decode_experts_down,
           {R::expert_ids, R::expert_weights, R::expert_mid, R::decode_coefficients, R::streams},
           {R::streams, R::hc_sums, R::decode_sublayer_out});
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

Schedule build_schedule(const Model& model, const Model* mtp, const ScheduleShape& shape) {
    return Builder(model, mtp, shape).build();
}

}  // namespace plimsoll
