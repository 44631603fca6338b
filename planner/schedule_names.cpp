#include <iterator>

#include "planner/schedule.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kBufferRoleNames[] = {"token_ids",
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
                                                 "mtp_norms",
                                                 "step_state",
                                                 "attn_in_f16",
                                                 "q_lora_f16",
                                                 "attn_out_f16",
                                                 "attn_low_f16",
                                                 "ffn_in_f16",
                                                 "head_in_f16",
                                                 "expert_tiles",
                                                 "attn_out",
                                                 "attn_partials",
                                                 "hc_sums",
                                                 "decode_coefficients",
                                                 "decode_sublayer_out",
                                                 "next_token"};
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
                                             "mtp_input",
                                             "decode_embed",
                                             "decode_hc_start",
                                             "decode_attn_products",
                                             "decode_q_products",
                                             "decode_indexer_select",
                                             "decode_attention",
                                             "decode_output_a",
                                             "decode_output_b",
                                             "decode_router_products",
                                             "decode_experts_up",
                                             "decode_experts_down",
                                             "decode_merge",
                                             "decode_head",
                                             "decode_choose"};
static_assert(std::size(kOpKindNames) == static_cast<std::size_t>(OpKind::count));

constexpr std::string_view kPhaseKindNames[] = {
    "embed",        "window_layer",        "csa_layer",        "hca_layer",
    "head",         "mtp_input",           "mtp_layer",        "mtp_head",
    "decode_embed", "decode_window_layer", "decode_csa_layer", "decode_hca_layer",
    "decode_head"};
static_assert(std::size(kPhaseKindNames) == kPhaseKindCount);

}  // namespace

std::string_view buffer_role_name(BufferRole role) {
    return kBufferRoleNames[static_cast<std::size_t>(role)];
}
std::string_view op_kind_name(OpKind kind) { return kOpKindNames[static_cast<std::size_t>(kind)]; }
std::string_view phase_kind_name(PhaseKind kind) {
    return kPhaseKindNames[static_cast<std::size_t>(kind)];
}

}  // namespace plimsoll
