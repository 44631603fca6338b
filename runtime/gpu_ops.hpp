#pragma once

#include "runtime/gpu_step.hpp"

/// The launches of a GPU's ops, for the table in gpu_op_table.cpp.
namespace plimsoll::gpu {

// Attention of a chunk (gpu_attention_ops.cpp).
void hc_attn(const GpuStep& step);
void q_a(const GpuStep& step);
void kv(const GpuStep& step);
void compressor(const GpuStep& step);
void compress(const GpuStep& step);
void indexer_compressor(const GpuStep& step);
void indexer_compress(const GpuStep& step);
void indexer_query(const GpuStep& step);
void indexer_select(const GpuStep& step);
void q_b(const GpuStep& step);
void attention(const GpuStep& step);
void append_window(const GpuStep& step);
void output_a(const GpuStep& step);
void output_b(const GpuStep& step);
void hc_merge(const GpuStep& step);

// Router, experts, and both ends of a chunk (gpu_feed_forward_ops.cpp).
void hc_ffn(const GpuStep& step);
void router(const GpuStep& step);
void experts(const GpuStep& step);
void shared_expert(const GpuStep& step);
void embed(const GpuStep& step);
void head_mix(const GpuStep& step);
void head(const GpuStep& step);
void mtp_input(const GpuStep& step);

// One token (gpu_decode_ops.cpp).
void decode_embed(const GpuStep& step);
void decode_hc_start(const GpuStep& step);
void decode_attn_products(const GpuStep& step);
void decode_q_products(const GpuStep& step);
void decode_indexer_select(const GpuStep& step);
void decode_attention(const GpuStep& step);
void decode_output_a(const GpuStep& step);
void decode_output_b(const GpuStep& step);
void decode_router_products(const GpuStep& step);
void decode_experts_up(const GpuStep& step);
void decode_experts_down(const GpuStep& step);
void decode_merge(const GpuStep& step);
void decode_head(const GpuStep& step);
void decode_choose(const GpuStep& step);

}  // namespace plimsoll::gpu
