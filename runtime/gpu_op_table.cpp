#include <array>
#include <cstddef>
#include <utility>

#include "runtime/gpu_ops.hpp"

namespace plimsoll {
namespace {

constexpr std::pair<OpKind, GpuOpFunction> kRows[] = {
    {OpKind::embed, gpu::embed},
    {OpKind::hc_attn, gpu::hc_attn},
    {OpKind::q_a, gpu::q_a},
    {OpKind::kv, gpu::kv},
    {OpKind::compressor, gpu::compressor},
    {OpKind::compress, gpu::compress},
    {OpKind::indexer_compressor, gpu::indexer_compressor},
    {OpKind::indexer_compress, gpu::indexer_compress},
    {OpKind::indexer_query, gpu::indexer_query},
    {OpKind::indexer_select, gpu::indexer_select},
    {OpKind::q_b, gpu::q_b},
    {OpKind::attention, gpu::attention},
    {OpKind::append_window, gpu::append_window},
    {OpKind::output_a, gpu::output_a},
    {OpKind::output_b, gpu::output_b},
    {OpKind::hc_attn_merge, gpu::hc_merge},
    {OpKind::hc_ffn, gpu::hc_ffn},
    {OpKind::router, gpu::router},
    {OpKind::experts, gpu::experts},
    {OpKind::shared_expert, gpu::shared_expert},
    {OpKind::hc_ffn_merge, gpu::hc_merge},
    {OpKind::head_mix, gpu::head_mix},
    {OpKind::head, gpu::head},
    {OpKind::mtp_input, gpu::mtp_input},
    {OpKind::decode_embed, gpu::decode_embed},
    {OpKind::decode_hc_start, gpu::decode_hc_start},
    {OpKind::decode_attn_products, gpu::decode_attn_products},
    {OpKind::decode_q_products, gpu::decode_q_products},
    {OpKind::decode_indexer_select, gpu::decode_indexer_select},
    {OpKind::decode_attention, gpu::decode_attention},
    {OpKind::decode_output_a, gpu::decode_output_a},
    {OpKind::decode_output_b, gpu::decode_output_b},
    {OpKind::decode_router_products, gpu::decode_router_products},
    {OpKind::decode_experts_up, gpu::decode_experts_up},
    {OpKind::decode_experts_down, gpu::decode_experts_down},
    {OpKind::decode_merge, gpu::decode_merge},
    {OpKind::decode_head, gpu::decode_head},
    {OpKind::decode_choose, gpu::decode_choose},
};

constexpr std::array<GpuOpFunction, static_cast<std::size_t>(OpKind::count)> make_table() {
    std::array<GpuOpFunction, static_cast<std::size_t>(OpKind::count)> table{};
    for (const auto& [kind, function] : kRows) table[static_cast<std::size_t>(kind)] = function;
    return table;
}
constexpr auto kTable = make_table();

}  // namespace

GpuOpFunction gpu_op(OpKind kind) { return kTable[static_cast<std::size_t>(kind)]; }

}  // namespace plimsoll
