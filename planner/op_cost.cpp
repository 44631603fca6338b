#include "planner/op_cost.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

using W = TensorRole;

constexpr double kFloatBytes = 4;

/// How a weight is used.
enum class Use : std::uint8_t {
    matrix,  // multiplied with every token's row
    routed,  // the same, by the experts that tokens chose
    vector,  // read whole, with little arithmetic
    lookup,  // a row a token
};

/// Which op of a chunk, and which of a decode step, reads a weight: each is read by one.
struct WeightUse {
    W role;
    Use use;
    OpKind chunk_op;
    OpKind decode_op;
};
constexpr WeightUse kWeightUses[] = {
    {W::token_embd, Use::lookup, OpKind::embed, OpKind::decode_embed},
    // In a decode step read by the layer before, or by decode_hc_start; priced where a layer's own
    // streams are merged last, which of all layers together is the same.
    {W::hc_attn_fn, Use::matrix, OpKind::hc_attn, OpKind::decode_experts_down},
    {W::hc_attn_scale, Use::vector, OpKind::hc_attn, OpKind::decode_attn_products},
    {W::hc_attn_base, Use::vector, OpKind::hc_attn, OpKind::decode_attn_products},
    {W::attn_norm, Use::vector, OpKind::hc_attn, OpKind::decode_attn_products},
    {W::attn_q_a, Use::matrix, OpKind::q_a, OpKind::decode_attn_products},
    {W::attn_q_a_norm, Use::vector, OpKind::q_a, OpKind::decode_q_products},
    {W::attn_q_b, Use::matrix, OpKind::q_b, OpKind::decode_q_products},
    {W::attn_kv, Use::matrix, OpKind::kv, OpKind::decode_attn_products},
    {W::attn_kv_a_norm, Use::vector, OpKind::kv, OpKind::decode_q_products},
    {W::attn_sinks, Use::vector, OpKind::attention, OpKind::decode_attention},
    {W::attn_output_a, Use::matrix, OpKind::output_a, OpKind::decode_output_a},
    {W::attn_output_b, Use::matrix, OpKind::output_b, OpKind::decode_output_b},
    {W::attn_compressor_kv, Use::matrix, OpKind::compressor, OpKind::decode_attn_products},
    {W::attn_compressor_gate, Use::matrix, OpKind::compressor, OpKind::decode_attn_products},
    {W::attn_compressor_ape, Use::vector, OpKind::compress, OpKind::decode_q_products},
    {W::attn_compressor_norm, Use::vector, OpKind::compress, OpKind::decode_q_products},
    {W::indexer_attn_q_b, Use::matrix, OpKind::indexer_query, OpKind::decode_q_products},
    {W::indexer_proj, Use::matrix, OpKind::indexer_query, OpKind::decode_q_products},
    {W::indexer_compressor_kv, Use::matrix, OpKind::indexer_compressor,
     OpKind::decode_attn_products},
    {W::indexer_compressor_gate, Use::matrix, OpKind::indexer_compressor,
     OpKind::decode_attn_products},
    {W::indexer_compressor_ape, Use::vector, OpKind::indexer_compress, OpKind::decode_q_products},
    {W::indexer_compressor_norm, Use::vector, OpKind::indexer_compress, OpKind::decode_q_products},
    {W::hc_ffn_fn, Use::matrix, OpKind::hc_ffn, OpKind::decode_output_b},
    {W::hc_ffn_scale, Use::vector, OpKind::hc_ffn, OpKind::decode_router_products},
    {W::hc_ffn_base, Use::vector, OpKind::hc_ffn, OpKind::decode_router_products},
    {W::ffn_norm, Use::vector, OpKind::hc_ffn, OpKind::decode_router_products},
    {W::ffn_gate_inp, Use::matrix, OpKind::router, OpKind::decode_router_products},
    {W::exp_probs_b, Use::vector, OpKind::router, OpKind::decode_experts_up},
    {W::ffn_gate_tid2eid, Use::lookup, OpKind::router, OpKind::decode_experts_up},
    {W::ffn_gate_exps, Use::routed, OpKind::experts, OpKind::decode_experts_up},
    {W::ffn_up_exps, Use::routed, OpKind::experts, OpKind::decode_experts_up},
    {W::ffn_down_exps, Use::routed, OpKind::experts, OpKind::decode_experts_down},
    {W::ffn_gate_shexp, Use::matrix, OpKind::shared_expert, OpKind::decode_router_products},
    {W::ffn_up_shexp, Use::matrix, OpKind::shared_expert, OpKind::decode_router_products},
    {W::ffn_down_shexp, Use::matrix, OpKind::shared_expert, OpKind::decode_experts_down},
    {W::output_hc_fn, Use::matrix, OpKind::head_mix, OpKind::head_mix},
    {W::output_hc_base, Use::vector, OpKind::head_mix, OpKind::head_mix},
    {W::output_hc_scale, Use::vector, OpKind::head_mix, OpKind::head_mix},
    {W::output_norm, Use::vector, OpKind::head_mix, OpKind::head_mix},
    {W::output, Use::matrix, OpKind::head, OpKind::decode_head},
};

bool is_indexer_query(W role) { return role == W::indexer_attn_q_b || role == W::indexer_proj; }

bool is_head(PhaseKind phase) {
    return phase == PhaseKind::head || phase == PhaseKind::decode_head;
}

/// Whether the indexer has anything to choose: not where the last token may keep all rows.
bool indexer_works(const PricedStep& step) {
    return (step.position + step.tokens) / 4 > step.model.hyper.indexer_top_k;
}

double elements_of(const Tensor& tensor) {
    double elements = 1;
    for (const std::uint64_t dim : tensor.dims) elements *= static_cast<double>(dim);
    return elements;
}

/// Compressed rows that the token at a position sees.
double visible_rows(std::uint64_t position, std::uint32_t ratio) {
    return ratio == 0 ? 0 : static_cast<double>(position / ratio);
}

bool runs_decode_ops(const PricedStep& step) {
    if (step.tokens != 1) return false;
    const auto& phases = step.schedule.phases;
    return std::any_of(phases.begin() + static_cast<std::ptrdiff_t>(PhaseKind::decode_embed),
                       phases.end(), [](const Phase& phase) { return phase.present; });
}

PhaseKind phase_of_layer(const PricedStep& step, std::int32_t layer, bool decodes) {
    const std::uint32_t ratio = step.model.hyper.compress_ratios[static_cast<std::size_t>(layer)];
    return decodes ? decode_layer_phase(ratio) : layer_phase(ratio);
}

bool has(const std::vector<BufferRole>& roles, BufferRole role) {
    return std::find(roles.begin(), roles.end(), role) != roles.end();
}

/// Whether a buffer that an op writes is read by no other op, so that it need not leave the caches.
bool is_scratch(const PricedStep& step, const Phase& phase, const Op& op, BufferRole role) {
    if (has(op.reads, role)) return false;
    for (std::uint32_t other = phase.first_op; other < phase.last_op; ++other)
        if (has(step.schedule.ops[other].reads, role)) return false;
    return true;
}

/// A step's part of a buffer: buffers grow with the tokens that are planned, but for those of one
/// token (the decode steps') or of its logits.
double buffer_bytes(const PricedStep& step, PhaseKind phase_kind, BufferRole role) {
    const Hyperparameters& hyper = step.model.hyper;
    const bool is_one = is_head(phase_kind) || phase_kind >= PhaseKind::decode_embed;
    const double tokens = is_one ? 1 : static_cast<double>(step.tokens);
    if (role == BufferRole::streams)
        return tokens * hyper.n_streams * hyper.hidden_size * kFloatBytes;
    const std::int32_t index =
        step.schedule.phase(phase_kind).buffer[static_cast<std::size_t>(role)];
    if (index < 0) return 0;
    const auto size =
        static_cast<double>(step.schedule.buffers[static_cast<std::size_t>(index)].size_bytes);
    // A score a row that is visible; the buffer has room for all of the planned context.
    if (role == BufferRole::indexer_scores)
        return std::min(size, tokens * kFloatBytes * visible_rows(step.position + step.tokens, 4));
    return is_one ? size : size * tokens / static_cast<double>(step.planned_tokens);
}

/// A row's form for weights that want it so. An op which has both to read takes the second.
struct RowForm {
    BufferRole floats;
    BufferRole converted;
};
constexpr RowForm kRowForms[] = {
    {BufferRole::attn_in, BufferRole::attn_in_q16},
    {BufferRole::attn_in, BufferRole::attn_in_q16k},
    {BufferRole::attn_in, BufferRole::attn_in_f16},
    {BufferRole::q_lora, BufferRole::q_lora_q16},
    {BufferRole::q_lora, BufferRole::q_lora_q16k},
    {BufferRole::q_lora, BufferRole::q_lora_f16},
    {BufferRole::attn_low, BufferRole::attn_low_q16},
    {BufferRole::attn_low, BufferRole::attn_low_q16k},
    {BufferRole::ffn_in, BufferRole::ffn_in_q16},
    {BufferRole::ffn_in, BufferRole::ffn_in_q16k},
    {BufferRole::ffn_in, BufferRole::ffn_in_f16},
    {BufferRole::head_in, BufferRole::head_in_q16},
    {BufferRole::head_in, BufferRole::head_in_q16k},
    {BufferRole::head_in, BufferRole::head_in_f16},
};

bool is_read_converted(const Op& op, BufferRole role) {
    return std::any_of(std::begin(kRowForms), std::end(kRowForms), [&](const RowForm& form) {
        return form.floats == role && has(op.reads, form.converted);
    });
}

void add_activations(const PricedStep& step, PhaseKind phase_kind, const Op& op, OpCost& cost) {
    const Phase& phase = step.schedule.phase(phase_kind);
    for (const BufferRole role : op.reads)
        if (!is_read_converted(op, role)) cost.bytes += buffer_bytes(step, phase_kind, role);
    for (const BufferRole role : op.writes)
        if (!is_scratch(step, phase, op, role)) cost.bytes += buffer_bytes(step, phase_kind, role);
    // Logits have a region of their own.
    if (op.kind == OpKind::head || op.kind == OpKind::decode_head ||
        op.kind == OpKind::decode_choose)
        cost.bytes += step.model.hyper.vocab_size * kFloatBytes;
}

void add_weights(const PricedStep& step, PhaseKind phase_kind, OpKind kind, std::int32_t layer,
                 OpCost& cost) {
    const Hyperparameters& hyper = step.model.hyper;
    const double tokens = is_head(phase_kind) ? 1 : static_cast<double>(step.tokens);
    const double used = static_cast<double>(hyper.n_experts_used) / hyper.n_experts;
    const bool decodes = phase_kind >= PhaseKind::decode_embed;
    for (const WeightUse& row : kWeightUses) {
        if ((decodes ? row.decode_op : row.chunk_op) != kind) continue;
        const Tensor* tensor = step.model.find(row.role, layer);
        if (tensor == nullptr || (is_indexer_query(row.role) && !indexer_works(step))) continue;
        const auto size = static_cast<double>(tensor->size_bytes);
        switch (row.use) {
            case Use::matrix: cost.flops += 2 * tokens * elements_of(*tensor); [[fallthrough]];
            case Use::vector: cost.dense_bytes += size; break;
            case Use::lookup:
                cost.dense_bytes += size * std::min(1.0, tokens / elements_of(*tensor) *
                                                             static_cast<double>(tensor->dims[0]));
                break;
            case Use::routed:
                // A chunk of T tokens misses an expert with probability (1 - k/E)^T.
                cost.expert_bytes += size * (1 - std::pow(1 - used, tokens));
                cost.flops += 2 * tokens * used * elements_of(*tensor);
                break;
        }
    }
    cost.bytes += cost.dense_bytes + cost.expert_bytes;
}

/// Planes of so many rows are hardly padded.
constexpr std::uint64_t kManyRows = 1'024;
double row_bytes_of(std::uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(kManyRows);
}

/// Cached rows that an op reads, each once, or writes, and the arithmetic on them: as many as the
/// token in the step's middle sees.
void add_cache(const PricedStep& step, OpKind kind, std::int32_t layer, OpCost& cost) {
    const Hyperparameters& hyper = step.model.hyper;
    const std::uint32_t ratio = hyper.compress_ratios[static_cast<std::size_t>(layer)];
    const auto tokens = static_cast<double>(step.tokens);
    const std::uint64_t middle = step.position + step.tokens / 2;
    const double in_middle = visible_rows(middle, ratio);
    const double in_all = visible_rows(step.position + step.tokens, ratio);
    const double window =
        std::min<double>(hyper.sliding_window_tokens, static_cast<double>(middle));
    const double row_bytes =
        row_bytes_of(kv_rows_bytes(step.kv_format, kManyRows, hyper.head_dim, hyper.rope_dim));
    const double index_row_bytes =
        row_bytes_of(indexer_rows_bytes(step.kv_format, kManyRows, hyper.indexer_head_dim));
    switch (kind) {
        case OpKind::attention:
        case OpKind::decode_attention: {
            const double chosen =
                ratio == 4 ? std::min<double>(in_middle, hyper.indexer_top_k) : in_middle;
            cost.flops += 4.0 * hyper.n_heads * hyper.head_dim * (window + chosen) * tokens;
            cost.bytes += row_bytes * (window + std::min(chosen * tokens, in_all));
            break;
        }
        case OpKind::indexer_select:
        case OpKind::decode_indexer_select:
            if (!indexer_works(step)) break;
            cost.flops += 2.0 * hyper.indexer_n_heads * hyper.indexer_head_dim * in_middle * tokens;
            cost.bytes += index_row_bytes * in_all;
            break;
        case OpKind::append_window: {
            // Of a long chunk the last rows alone.
            const double kept = std::min<double>(hyper.sliding_window_tokens, tokens);
            cost.bytes = kept * (hyper.head_dim * kFloatBytes + row_bytes);
            break;
        }
        case OpKind::compress: cost.bytes += tokens / ratio * row_bytes; break;
        case OpKind::indexer_compress: cost.bytes += tokens / ratio * index_row_bytes; break;
        case OpKind::decode_q_products:
            cost.bytes += row_bytes + (ratio == 0 ? 0 : row_bytes / ratio) +
                          (ratio == 4 ? index_row_bytes / ratio : 0);
            break;
        default: break;
    }
}

OpCost price(const PricedStep& step, PhaseKind phase_kind, const Op& op, std::int32_t layer) {
    OpCost cost;
    if (op.kind == OpKind::indexer_query && !indexer_works(step)) return cost;
    add_activations(step, phase_kind, op, cost);
    add_weights(step, phase_kind, op.kind, layer, cost);
    if (layer != kNoLayer) add_cache(step, op.kind, layer, cost);
    return cost;
}

OpCost phase_cost(const PricedStep& step, PhaseKind phase_kind, std::int32_t layer) {
    const Phase& phase = step.schedule.phase(phase_kind);
    OpCost sum;
    for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
        sum += price(step, phase_kind, step.schedule.ops[op], layer);
    return sum;
}

}  // namespace

OpCost& OpCost::operator+=(const OpCost& other) {
    bytes += other.bytes;
    dense_bytes += other.dense_bytes;
    expert_bytes += other.expert_bytes;
    flops += other.flops;
    return *this;
}

OpCost op_cost(const PricedStep& step, OpKind kind, std::int32_t layer) {
    const auto search = [&](PhaseKind phase_kind) -> const Op* {
        const Phase& phase = step.schedule.phase(phase_kind);
        for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
            if (step.schedule.ops[op].kind == kind) return &step.schedule.ops[op];
        return nullptr;
    };
    if (layer != kNoLayer) {
        const PhaseKind phase = phase_of_layer(step, layer, kind >= OpKind::decode_embed);
        const Op* op = search(phase);
        return op == nullptr ? OpCost{} : price(step, phase, *op, layer);
    }
    for (const PhaseKind end : {PhaseKind::embed, PhaseKind::head, PhaseKind::mtp_input,
                                PhaseKind::decode_embed, PhaseKind::decode_head})
        if (const Op* op = search(end)) return price(step, end, *op, layer);
    return {};
}

OpCost layer_cost(const PricedStep& step, std::int32_t layer) {
    return phase_cost(step, phase_of_layer(step, layer, runs_decode_ops(step)), layer);
}

OpCost embed_cost(const PricedStep& step) {
    return phase_cost(step, runs_decode_ops(step) ? PhaseKind::decode_embed : PhaseKind::embed,
                      kNoLayer);
}

OpCost head_cost(const PricedStep& step) {
    return phase_cost(step, runs_decode_ops(step) ? PhaseKind::decode_head : PhaseKind::head,
                      kNoLayer);
}

std::uint64_t cache_bytes_in_use(const Model& model, const Grant& grant, std::uint64_t position) {
    const Hyperparameters& hyper = model.hyper;
    const std::uint64_t window = std::min(position, window_ring_rows(hyper, grant));
    std::uint64_t bytes = 0;
    for (const std::uint32_t ratio : hyper.compress_ratios) {
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
