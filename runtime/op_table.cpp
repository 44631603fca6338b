#include <cstddef>
#include <iterator>
#include <utility>

#include "runtime/forward_ops.hpp"

namespace plimsoll {
namespace {

constexpr std::pair<OpKind, OpFunction> kRows[] = {
    {OpKind::embed, embed},
    {OpKind::hc_attn, hc_attn},
    {OpKind::quantize_attn_in, quantize_attn_in},
    {OpKind::q_a, q_a},
    {OpKind::kv, kv},
    {OpKind::compressor, compressor},
    {OpKind::compress, compress},
    {OpKind::indexer_compressor, indexer_compressor},
    {OpKind::indexer_compress, indexer_compress},
    {OpKind::indexer_query, indexer_query},
    {OpKind::indexer_select, indexer_select},
    {OpKind::quantize_q_lora, quantize_q_lora},
    {OpKind::q_b, q_b},
    {OpKind::attention, attention},
    {OpKind::append_window, append_window},
    {OpKind::quantize_attn_out, quantize_attn_out},
    {OpKind::output_a, output_a},
    {OpKind::quantize_attn_low, quantize_attn_low},
    {OpKind::output_b, output_b},
    {OpKind::hc_attn_merge, hc_attn_merge},
    {OpKind::hc_ffn, hc_ffn},
    {OpKind::router, router},
    {OpKind::quantize_ffn_in, quantize_ffn_in},
    {OpKind::experts, experts},
    {OpKind::shared_expert, shared_expert},
    {OpKind::hc_ffn_merge, hc_ffn_merge},
    {OpKind::head_mix, head_mix},
    {OpKind::quantize_head_in, quantize_head_in},
    {OpKind::head, head},
    {OpKind::mtp_input, mtp_input},
};

constexpr bool rows_follow_the_enum() {
    for (std::size_t at = 0; at < std::size(kRows); ++at)
        if (static_cast<std::size_t>(kRows[at].first) != at) return false;
    return std::size(kRows) == kChunkOpKindCount;
}
static_assert(rows_follow_the_enum());

using OpTable = std::array<OpFunction, std::size(kRows)>;

constexpr OpTable make_table() {
    OpTable table{};
    for (std::size_t at = 0; at < std::size(kRows); ++at) table[at] = kRows[at].second;
    return table;
}
constexpr OpTable kTable = make_table();

}  // namespace

const OpTable& op_table() { return kTable; }

}  // namespace plimsoll
