#pragma once

#include "kernels/cuda/compressor.cuh"
#include "kernels/cuda/decode.hpp"

// The rows that one token adds, a block each: its own KV row and those of its compressors. A row's
// norm and rounding are over the whole row, so a row stays in one block of kCompressorThreads; all
// move about 20 KB, and what counts is the chain of latencies: the products' outputs, the norm's
// sum, the store.

namespace plimsoll::kernels::cuda {

struct OwnRowArgs {
    const float* kv;
    const float* norm_weight;
    KvRegion ring;
    RopeAngles angles;
    CacheRounding rounding;
    float rms_epsilon;
};

__device__ __forceinline__ void own_row(const OwnRowArgs& args, RowScratch& scratch,
                                        const StepState* state, float norm_weight) {
    const std::uint32_t head_dim = args.ring.head_dim;
    const float value = threadIdx.x < head_dim ? args.kv[threadIdx.x] : 0.0f;
    const std::uint64_t position = state->position;
    norm_and_rotate(scratch, value, args.angles, norm_weight, position, head_dim, args.rms_epsilon);
    round_kv_row(scratch.row, head_dim, args.ring.rope_dim, args.ring.format, args.rounding);
    __syncthreads();
    store_kv_row(args.ring, position % args.ring.row_capacity, scratch.row);
}

/// Pooling reads the token from the products' outputs, not from the state, and a thread updates
/// only columns that it alone has pooled: lanes A and B of column c are c and dim + c.
__device__ __forceinline__ void compress_token(const CompressorArgs& args, RowScratch& scratch,
                                               const StepState* state, float norm_weight) {
    const ChunkSpan span = chunk_span(args, state->position);
    const bool is_finished = span.end_window > span.first_window;
    const std::uint32_t in_window = is_finished ? args.ratio - 1 : span.end_in_window - 1;
    with_ape(args, [&](const auto* ape) {
        if (is_finished) emit_row(args, ape, scratch, span, span.first_window, norm_weight);
        // A finished window moves as a whole; else only the token's own row changes.
        const bool moves = is_finished && args.ratio == kOverlapRatio;
        if (threadIdx.x >= args.dim) return;
        for (std::uint32_t column = threadIdx.x; column < args.width; column += args.dim)
            for (std::uint32_t i = moves ? 0 : in_window; i <= in_window; ++i)
                update_state(args, ape, span, i, column);
    });
}

/// Blocks that make rows: number 0 the own row, those behind it the compressors' that there are.
struct RowsArgs {
    OwnRowArgs own;
    CompressorArgs compressors[2];
    std::uint32_t n_blocks;  // 1 to 3
};

__device__ __forceinline__ void make_row(const RowsArgs& args, std::uint32_t block,
                                         RowScratch& scratch, const StepState* state) {
    const bool is_own = block == 0;
    const CompressorArgs& compressor = args.compressors[is_own ? 0 : block - 1];
    // Weights may be fetched before the products' outputs are there.
    const float* norm = is_own ? args.own.norm_weight : compressor.norm_weight;
    const std::uint32_t dim = is_own ? args.own.ring.head_dim : compressor.dim;
    const float norm_weight = threadIdx.x < dim ? norm[threadIdx.x] : 0.0f;
    wait_for_previous_kernel();
    if (is_own)
        own_row(args.own, scratch, state, norm_weight);
    else
        compress_token(compressor, scratch, state, norm_weight);
}

/// Checks the shapes and flattens them for a kernel.
inline RowsArgs rows_args(const DecodeRowsParams& params) {
    PLIMSOLL_KERNEL_CHECK(params.ring.head_dim <= kHeadDimMax, "row is wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.ring.head_dim % 2 == 0, "rotated pairs are neighbours");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim == params.ring.rope_dim,
                          "the ring's tail is what is rotated");
    const auto one_token = [](CompressorParams compressor) {
        compressor.n_tokens = 1;
        return compressor_args(compressor);
    };
    RowsArgs args{{params.kv, params.kv_norm, kv_region(params.ring), rope_angles(params.rope),
                   params.rounding, params.rms_epsilon},
                  {},
                  1};
    for (const CompressorParams* compressor : {&params.rows, &params.index_rows})
        if (compressor->g_kv != nullptr)
            args.compressors[args.n_blocks++ - 1] = one_token(*compressor);
    return args;
}

}  // namespace plimsoll::kernels::cuda
