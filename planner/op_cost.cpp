#include "planner/op_cost.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

using W = TensorRole;

/// Which weights an op reads. Ops that are not here read none.
struct OpWeights {
    OpKind kind;
    std::vector<W> roles;
};
const std::vector<OpWeights>& op_weights() {
    static const std::vector<OpWeights> rows = {
        {OpKind::hc_attn, {W::hc_attn_fn}},
        {OpKind::q_a, {W::attn_q_a}},
        {OpKind::kv, {W::attn_kv}},
        {OpKind::compressor, {W::attn_compressor_kv, W::attn_compressor_gate}},
        {OpKind::indexer_compressor, {W::indexer_compressor_kv, W::indexer_compressor_gate}},
        {OpKind::indexer_query, {W::indexer_attn_q_b, W::indexer_proj}},
        {OpKind::q_b, {W::attn_q_b}},
        {OpKind::output_a, {W::attn_output_a}},
        {OpKind::output_b, {W::attn_output_b}},
        {OpKind::hc_ffn, {W::hc_ffn_fn}},
        {OpKind::router, {W::ffn_gate_inp}},
        {OpKind::experts, {W::ffn_gate_exps, W::ffn_up_exps, W::ffn_down_exps}},
        {OpKind::shared_expert, {W::ffn_gate_shexp, W::ffn_up_shexp, W::ffn_down_shexp}},
        {OpKind::head_mix, {W::output_hc_fn}},
        {OpKind::head, {W::output}},
        {OpKind::decode_hc_attn, {W::hc_attn_fn}},
        {OpKind::decode_attn_products,
         {W::attn_q_a, W::attn_kv, W::attn_compressor_kv, W::attn_compressor_gate,
          W::indexer_compressor_kv, W::indexer_compressor_gate}},
        {OpKind::decode_q_products, {W::attn_q_b, W::indexer_attn_q_b, W::indexer_proj}},
        {OpKind::decode_output_a, {W::attn_output_a}},
        {OpKind::decode_output_b, {W::attn_output_b}},
        {OpKind::decode_hc_ffn, {W::hc_ffn_fn}},
        {OpKind::decode_router_products, {W::ffn_gate_inp}},
        {OpKind::decode_experts_up,
         {W::ffn_gate_exps, W::ffn_up_exps, W::ffn_gate_shexp, W::ffn_up_shexp}},
        {OpKind::decode_experts_down, {W::ffn_down_exps, W::ffn_down_shexp}},
        {OpKind::decode_head, {W::output}},
    };
    return rows;
}

bool is_routed(W role) {
    return role == W::ffn_gate_exps || role == W::ffn_up_exps || role == W::ffn_down_exps;
}

bool is_indexer_query(W role) { return role == W::indexer_attn_q_b || role == W::indexer_proj; }

/// What of the indexer a step needs: nothing where its last token may keep all rows.
bool indexer_works(const PricedStep& step) {
    return (step.position + step.tokens) / 4 > step.model.hyper.indexer_top_k;
}

/// Where on the schedule a kind of op is for a layer.
const Op* find_op(const PricedStep& step, OpKind kind, std::int32_t layer, const Phase*& phase) {
    const bool is_decode = kind >= OpKind::decode_embed;
    const auto search = [&](PhaseKind phase_kind) -> const Op* {
        phase = &step.schedule.phase(phase_kind);
        for (std::uint32_t op = phase->first_op; op < phase->last_op; ++op)
            if (step.schedule.ops[op].kind == kind) return &step.schedule.ops[op];
        return nullptr;
    };
    if (layer != kNoLayer) {
        const std::uint32_t ratio =
            step.model.hyper.compress_ratios[static_cast<std::size_t>(layer)];
        return search(is_decode ? decode_layer_phase(ratio) : layer_phase(ratio));
    }
    for (const PhaseKind end : {PhaseKind::embed, PhaseKind::head, PhaseKind::decode_embed,
                                PhaseKind::decode_head, PhaseKind::mtp_input})
        if (const Op* op = search(end)) return op;
    return nullptr;
}

/// Bytes of a step's part of the buffers that an op reads and writes.
double buffer_bytes(const PricedStep& step, const Op& op, const Phase& phase) {
    const bool is_decode = op.kind >= OpKind::decode_embed;
    const double share =
        is_decode ? 1.0
                  : static_cast<double>(step.tokens) / static_cast<double>(step.planned_tokens);
    double bytes = 0;
    for (const std::vector<BufferRole>* roles : {&op.reads, &op.writes})
        for (const BufferRole role : *roles) {
            const std::int32_t buffer = phase.buffer[static_cast<std::size_t>(role)];
            // Of the scores only the top of what fits is a buffer; they are counted as arithmetic.
            if (buffer < 0 || role == BufferRole::indexer_scores) continue;
            double size = static_cast<double>(
                step.schedule.buffers[static_cast<std::size_t>(buffer)].size_bytes);
            if (is_decode && role == BufferRole::streams)
                size /= static_cast<double>(step.planned_tokens);
            // The head's own buffers are of as many rows as it takes at once.
            const bool is_whole =
                &phase == &step.schedule.phase(PhaseKind::head) && role != BufferRole::streams;
            bytes += is_whole ? size : size * share;
        }
    return bytes;
}

void add_weights(const PricedStep& step, OpKind kind, std::int32_t layer, OpCost& cost) {
    const auto row = std::find_if(op_weights().begin(), op_weights().end(),
                                  [&](const OpWeights& at) { return at.kind == kind; });
    if (row == op_weights().end()) return;
    const Hyperparameters& hyper = step.model.hyper;
    const auto tokens = static_cast<double>(step.tokens);
    const double used = static_cast<double>(hyper.n_experts_used) / hyper.n_experts;
    for (const W role : row->roles) {
        const Tensor* tensor = step.model.find(role, layer);
        if (tensor == nullptr || (is_indexer_query(role) && !indexer_works(step))) continue;
        double elements = 1;
        for (const std::uint64_t dim : tensor->dims) elements *= static_cast<double>(dim);
        const bool routed = is_routed(role);
        // A chunk of T tokens misses an expert with probability (1 - k/E)^T.
        const double touched = routed ? 1 - std::pow(1 - used, tokens) : 1;
        cost.bytes += static_cast<double>(tensor->size_bytes) * touched;
        cost.flops += 2 * tokens * elements * (routed ? used : 1);
    }
}

/// Rows that a step's attention or indexer reads, and the arithmetic on them.
void add_cache(const PricedStep& step, OpKind kind, std::int32_t layer, OpCost& cost) {
    const Hyperparameters& hyper = step.model.hyper;
    const std::uint32_t ratio = hyper.compress_ratios[static_cast<std::size_t>(layer)];
    const auto tokens = static_cast<double>(step.tokens);
    const double middle = static_cast<double>(step.position) + tokens / 2;
    const double visible = ratio == 0 ? 0 : std::floor(middle / ratio);
    if (kind == OpKind::attention || kind == OpKind::decode_attention) {
        const double chosen = ratio == 4 ? std::min<double>(visible, hyper.indexer_top_k) : visible;
        const double rows = std::min<double>(hyper.sliding_window_tokens, middle) + chosen;
        const double row_bytes = static_cast<double>(kv_rows_bytes(
                                     step.kv_format, 1024, hyper.head_dim, hyper.rope_dim)) /
                                 1024;
        cost.flops += 4.0 * hyper.n_heads * hyper.head_dim * rows * tokens;
        // Of a chunk all compressed rows are read, but each from memory once.
        cost.bytes += row_bytes * (step.tokens == 1 ? rows : visible + hyper.sliding_window_tokens);
    }
    if ((kind == OpKind::indexer_select || kind == OpKind::decode_indexer_scores) &&
        indexer_works(step)) {
        cost.flops += 2.0 * hyper.indexer_n_heads * hyper.indexer_head_dim * visible * tokens;
        cost.bytes +=
            visible *
            static_cast<double>(indexer_rows_bytes(step.kv_format, 1024, hyper.indexer_head_dim)) /
            1024;
    }
}

}  // namespace

OpCost op_cost(const PricedStep& priced, OpKind kind, std::int32_t layer) {
    const Phase* phase = nullptr;
    const Op* op = find_op(priced, kind, layer, phase);
    OpCost cost;
    if (op == nullptr) return cost;
    PricedStep step = priced;
    // A chunk's head works on its last row alone.
    if (phase == &priced.schedule.phase(PhaseKind::head)) step.tokens = 1;
    cost.bytes = buffer_bytes(step, *op, *phase);
    add_weights(step, kind, layer, cost);
    if (layer != kNoLayer) add_cache(step, kind, layer, cost);
    return cost;
}

std::uint64_t cache_bytes_in_use(const Model& model, const Grant& grant, std::uint64_t position) {
    const Hyperparameters& hyper = model.hyper;
    std::uint64_t bytes = 0;
    for (const std::uint32_t ratio : hyper.compress_ratios) {
        const std::uint64_t window = std::min(position, window_ring_rows(hyper, grant));
        bytes += kv_rows_bytes(grant.kv_format, window, hyper.head_dim, hyper.rope_dim);
        if (ratio == 0) continue;
        const std::uint64_t rows = position / ratio;
        bytes += kv_rows_bytes(grant.kv_format, rows, hyper.head_dim, hyper.rope_dim) +
                 compressor_state_bytes(ratio, hyper.head_dim);
        if (ratio == 4)
            bytes += indexer_rows_bytes(grant.kv_format, rows, hyper.indexer_head_dim) +
                     compressor_state_bytes(ratio, hyper.indexer_head_dim);
    }
    return bytes;
}

}  // namespace plimsoll
