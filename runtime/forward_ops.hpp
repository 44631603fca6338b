#pragma once

#include <array>

#include "planner/schedule.hpp"
#include "runtime/forward_step.hpp"

namespace plimsoll {

/// What carries out an op of the schedule on the CPU: the kernels of kernels/ops.hpp on the buffers
/// that the plan gave them. Never allocates and never fails.
using OpFunction = void (*)(const ForwardStep&);

/// The function of every op kind of chunks, by kind.
[[nodiscard]] const std::array<OpFunction, kChunkOpKindCount>& op_table();

// Attention (attention_ops.cpp).
void hc_attn(const ForwardStep& step);
void quantize_attn_in(const ForwardStep& step);
void q_a(const ForwardStep& step);
void kv(const ForwardStep& step);
void compressor(const ForwardStep& step);
void compress(const ForwardStep& step);
void indexer_compressor(const ForwardStep& step);
void indexer_compress(const ForwardStep& step);
void indexer_query(const ForwardStep& step);
void indexer_select(const ForwardStep& step);
void quantize_q_lora(const ForwardStep& step);
void q_b(const ForwardStep& step);
void attention(const ForwardStep& step);
void append_window(const ForwardStep& step);
void quantize_attn_out(const ForwardStep& step);
void output_a(const ForwardStep& step);
void quantize_attn_low(const ForwardStep& step);
void output_b(const ForwardStep& step);
void hc_attn_merge(const ForwardStep& step);

// Router and experts (feed_forward_ops.cpp).
void hc_ffn(const ForwardStep& step);
void router(const ForwardStep& step);
void quantize_ffn_in(const ForwardStep& step);
void experts(const ForwardStep& step);
void shared_expert(const ForwardStep& step);
void hc_ffn_merge(const ForwardStep& step);

// Both ends (end_ops.cpp).
void embed(const ForwardStep& step);
void head_mix(const ForwardStep& step);
void quantize_head_in(const ForwardStep& step);
void head(const ForwardStep& step);
void mtp_input(const ForwardStep& step);

}  // namespace plimsoll
