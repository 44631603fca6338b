#pragma once

#include "kernels/cuda/kv_rows.cuh"

// A compressor's rows and rolling state, shared by chunks (compressor.cu) and the decode step
// (decode_rows.cuh), so that both make the same bits. A block of threads makes one row, a thread a
// column of it; a thread keeps to its column of every lane, so pooling and the state's update need
// no synchronisation between them.

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kCompressorRatioMax = 128;
inline constexpr std::uint32_t kOverlapRatio = 4;
/// Threads of a block: a column each at head_dim 512.
inline constexpr std::uint32_t kCompressorThreads = 512;

struct CompressorArgs {
    const float* g_kv;  // [T, width]; null: no compressor
    const float* g_sc;  // [T, width]
    const void* ape;    // [ratio, width]
    WeightType ape_type;
    CacheRounding rounding;
    const float* norm_weight;  // [dim]
    float* state_kv;           // [state rows, width]
    float* state_score;        // [state rows, width]
    KvRegion kv_rows;
    IndexerRegion indexer_rows;
    RopeAngles angles;
    std::uint32_t n_tokens;
    std::uint32_t ratio;
    std::uint32_t dim;
    std::uint32_t width;
    float rms_epsilon;
    float hadamard_scale;
};

/// What a block needs in shared memory to finish a row.
struct RowScratch {
    float row[kHeadDimMax];
    float partials[kCompressorThreads / kWarp];
};

/// Checks a compressor's shape and flattens it for a kernel.
CompressorArgs compressor_args(const CompressorParams& params);

// Pooling.

__device__ __forceinline__ float f32_of(float value) { return value; }
__device__ __forceinline__ float f32_of(__half value) { return __half2float(value); }
__device__ __forceinline__ float f32_of(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Calls `body` with the position biases in their type, outside of all loops: a branch between
/// loads would keep them from overlapping.
template <class Body>
__device__ __forceinline__ void with_ape(const CompressorArgs& args, const Body& body) {
    switch (args.ape_type) {
        case WeightType::f16: body(static_cast<const __half*>(args.ape)); break;
        case WeightType::bf16: body(static_cast<const __nv_bfloat16*>(args.ape)); break;
        default: body(static_cast<const float*>(args.ape)); break;
    }
}

/// Where a chunk starts and ends, in windows.
struct ChunkSpan {
    std::uint64_t first_position;
    std::uint64_t first_window;
    std::uint64_t end_window;     // that of the position behind the chunk
    std::uint32_t end_in_window;  // that position's place in it
};
__device__ __forceinline__ ChunkSpan chunk_span(const CompressorArgs& args,
                                                std::uint64_t first_position) {
    const std::uint64_t end = first_position + args.n_tokens;
    const std::uint64_t end_window = end / args.ratio;
    return {first_position, first_position / args.ratio, end_window,
            static_cast<std::uint32_t>(end - end_window * args.ratio)};
}

/// State row of a token of its window.
__device__ __forceinline__ std::uint32_t current_row(std::uint32_t ratio, std::uint32_t in_window) {
    return in_window + (ratio == kOverlapRatio ? kOverlapRatio : 0);
}

/// Value and biased logit of one token's column: x and y. From the chunk or, for a token before it,
/// from the state: of the window that the chunk continues or, with overlap, the one before.
template <class Ape>
__device__ __forceinline__ float2 token_column(const CompressorArgs& args, const Ape* ape,
                                               const ChunkSpan& span, std::uint64_t window,
                                               std::uint32_t in_window, std::uint32_t column) {
    const std::uint64_t position = window * args.ratio + in_window;
    const bool in_chunk = position >= span.first_position;
    const std::uint64_t row = in_chunk                      ? position - span.first_position
                              : window == span.first_window ? current_row(args.ratio, in_window)
                                                            : in_window;
    const std::uint64_t at = row * args.width + column;
    const float value = (in_chunk ? args.g_kv : args.state_kv)[at];
    const float score = (in_chunk ? args.g_sc : args.state_score)[at];
    const float bias =
        in_chunk ? f32_of(ape[std::uint64_t{in_window} * args.width + column]) : 0.0f;
    return make_float2(value, bias + score);
}

/// A softmax's sums, relative to the largest logit so far.
struct PooledColumn {
    float largest = -3.4e38f;
    float sum = 0.0f;
    float weighted = 0.0f;
};

/// Adds kTokens tokens of one column, loaded together so that their latencies overlap.
template <int kTokens, class Ape>
__device__ __forceinline__ void pool_tokens(const CompressorArgs& args, const Ape* ape,
                                            const ChunkSpan& span, std::uint64_t window,
                                            std::uint32_t in_window, std::uint32_t column,
                                            PooledColumn& pooled) {
    float2 token[kTokens];
    float largest = pooled.largest;
#pragma unroll
    for (int i = 0; i < kTokens; ++i)
        token[i] =
            token_column(args, ape, span, window, in_window + static_cast<unsigned>(i), column);
#pragma unroll
    for (int i = 0; i < kTokens; ++i) largest = fmaxf(largest, token[i].y);
    const float rescale = expf(pooled.largest - largest);
    pooled.sum *= rescale;
    pooled.weighted *= rescale;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
        const float weight = expf(token[i].y - largest);
        pooled.sum += weight;
        pooled.weighted += weight * token[i].x;
    }
    pooled.largest = largest;
}

/// One column of a window's row: candidates in ascending position, with overlap lane A of the
/// window before and then lane B of this one.
template <class Ape>
__device__ __forceinline__ float pool_column(const CompressorArgs& args, const Ape* ape,
                                             const ChunkSpan& span, std::uint64_t window,
                                             std::uint32_t column) {
    PooledColumn pooled;
    if (args.ratio == kOverlapRatio) {
        // Before the first window there is nothing, which weighs nothing.
        if (window > 0) pool_tokens<4>(args, ape, span, window - 1, 0, column, pooled);
        pool_tokens<4>(args, ape, span, window, 0, args.dim + column, pooled);
    } else {
        std::uint32_t i = 0;
        for (; i + 8 <= args.ratio; i += 8)
            pool_tokens<8>(args, ape, span, window, i, column, pooled);
        for (; i < args.ratio; ++i) pool_tokens<1>(args, ape, span, window, i, column, pooled);
    }
    return pooled.weighted / pooled.sum;
}

// Rows. A thread has column threadIdx.x, and 0 where there is none.

/// The thread's element of a row after norm and rotation, also in scratch.row; synchronises.
__device__ __forceinline__ void norm_and_rotate(RowScratch& scratch, float value,
                                                const RopeAngles& angles, float norm_weight,
                                                std::uint64_t position, std::uint32_t dim,
                                                float epsilon) {
    const std::uint32_t column = threadIdx.x;
    const std::uint32_t rope_first = dim - 2 * angles.n_pairs;
    const bool turns = column >= rope_first && column < dim;
    // Before the sum, whose latency hides it.
    float2 rotation = make_float2(1.0f, 0.0f);
    if (turns) rotation = rotation_of(angles, (column - rope_first) / 2, position);
    const float mean = block_sum(value * value, scratch.partials) / static_cast<float>(dim);
    const float normed = value * (1.0f / sqrtf(mean + epsilon)) * norm_weight;
    // dim is even, so the lanes of a pair are neighbours.
    const float partner = __shfl_xor_sync(kAllLanes, normed, 1);
    const float2 turned = column % 2 == 0 ? rotate(make_float2(normed, partner), rotation)
                                          : rotate(make_float2(partner, normed), rotation);
    const float rotated = column % 2 == 0 ? turned.x : turned.y;
    if (column < dim) scratch.row[column] = turns ? rotated : normed;
    __syncthreads();
}

/// The finished row of a window into its region.
template <class Ape>
__device__ __forceinline__ void emit_row(const CompressorArgs& args, const Ape* ape,
                                         RowScratch& scratch, const ChunkSpan& span,
                                         std::uint64_t window, float norm_weight) {
    const float pooled =
        threadIdx.x < args.dim ? pool_column(args, ape, span, window, threadIdx.x) : 0.0f;
    norm_and_rotate(scratch, pooled, args.angles, norm_weight, window * args.ratio, args.dim,
                    args.rms_epsilon);
    if (args.kv_rows.base != nullptr) {
        round_kv_row(scratch.row, args.dim, args.angles.n_pairs * 2, args.kv_rows.format,
                     args.rounding);
        __syncthreads();
        store_kv_row(args.kv_rows, window, scratch.row);
        return;
    }
    if (args.rounding == CacheRounding::on)
        hadamard_row(scratch.row, args.dim, args.hadamard_scale);
    round_and_store_indexer_row(args.indexer_rows, window, scratch.row, args.rounding);
}

// State.

__device__ __forceinline__ void store_state(const CompressorArgs& args, std::uint32_t row,
                                            std::uint32_t column, float2 token) {
    const std::uint64_t at = std::uint64_t{row} * args.width + column;
    args.state_kv[at] = token.x;
    args.state_score[at] = token.y;
}

/// One column of the state's tokens `in_window` of their windows, as token-by-token decoding would
/// leave it. With overlap the last finished window's token moves to the previous window's rows
/// first: it may come from the row that the newest token then takes.
template <class Ape>
__device__ __forceinline__ void update_state(const CompressorArgs& args, const Ape* ape,
                                             const ChunkSpan& span, std::uint32_t in_window,
                                             std::uint32_t column) {
    if (args.ratio == kOverlapRatio && span.end_window > span.first_window)
        store_state(args, in_window, column,
                    token_column(args, ape, span, span.end_window - 1, in_window, column));
    const bool in_end = in_window < span.end_in_window;
    if (!in_end && span.end_window == 0) return;
    const std::uint64_t window = in_end ? span.end_window : span.end_window - 1;
    if (window * args.ratio + in_window < span.first_position) return;
    store_state(args, current_row(args.ratio, in_window), column,
                token_column(args, ape, span, window, in_window, column));
}

}  // namespace plimsoll::kernels::cuda
