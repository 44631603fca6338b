#pragma once

#include "kernels/cuda/kv_rows.cuh"

// A compressor's rows and rolling state, shared by chunks (compressor.cu) and the decode step
// (decode_rows.cu), so that both make the same bits. A block of threads makes one row; a thread
// keeps to its columns, so pooling and the state's update need no synchronisation between them.

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
    float2 rotation[kRopeDimMax / 2];
    float partials[kCompressorThreads / kWarp];
};

/// Checks a compressor's shape and flattens it for a kernel.
CompressorArgs compressor_args(const CompressorParams& params);

__device__ __forceinline__ float ape_value(const CompressorArgs& args, std::uint64_t at) {
    switch (args.ape_type) {
        case WeightType::f16: return __half2float(static_cast<const __half*>(args.ape)[at]);
        case WeightType::bf16:
            return __bfloat162float(static_cast<const __nv_bfloat16*>(args.ape)[at]);
        default: return static_cast<const float*>(args.ape)[at];
    }
}

/// State row of a token of its window.
__device__ __forceinline__ std::uint32_t current_row(std::uint32_t ratio, std::uint64_t position) {
    return static_cast<std::uint32_t>(position % ratio) +
           (ratio == kOverlapRatio ? kOverlapRatio : 0);
}

/// Value and biased logit of one token's column: x and y.
__device__ __forceinline__ float2 token_column(const CompressorArgs& args,
                                               std::uint64_t first_position, std::uint64_t position,
                                               std::uint32_t column) {
    const auto in_window = static_cast<std::uint32_t>(position % args.ratio);
    if (position >= first_position) {
        const std::uint64_t at = (position - first_position) * args.width + column;
        return make_float2(
            args.g_kv[at],
            ape_value(args, std::uint64_t{in_window} * args.width + column) + args.g_sc[at]);
    }
    // Before the chunk: of the window that the chunk continues or, with overlap, the one before.
    const bool is_current = position / args.ratio == first_position / args.ratio;
    const std::uint32_t row = is_current ? current_row(args.ratio, position) : in_window;
    const std::uint64_t at = std::uint64_t{row} * args.width + column;
    return make_float2(args.state_kv[at], args.state_score[at]);
}

/// A softmax's sums, relative to the largest logit so far.
struct PooledColumn {
    float largest = -3.4e38f;
    float sum = 0.0f;
    float weighted = 0.0f;
};

/// Adds kTokens tokens of one column, loaded together so that their latencies overlap.
template <int kTokens>
__device__ __forceinline__ void pool_tokens(const CompressorArgs& args,
                                            std::uint64_t first_position, std::uint64_t position,
                                            std::uint32_t column, PooledColumn& pooled) {
    float2 token[kTokens];
    float largest = pooled.largest;
#pragma unroll
    for (int i = 0; i < kTokens; ++i)
        token[i] = token_column(args, first_position, position + static_cast<unsigned>(i), column);
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
__device__ __forceinline__ float pool_column(const CompressorArgs& args,
                                             std::uint64_t first_position, std::uint64_t window,
                                             std::uint32_t column) {
    PooledColumn pooled;
    const std::uint64_t first = window * args.ratio;
    if (args.ratio == kOverlapRatio) {
        // Before the first window there is nothing, which weighs nothing.
        if (window > 0) pool_tokens<4>(args, first_position, first - kOverlapRatio, column, pooled);
        pool_tokens<4>(args, first_position, first, args.dim + column, pooled);
    } else {
        std::uint32_t i = 0;
        for (; i + 8 <= args.ratio; i += 8)
            pool_tokens<8>(args, first_position, first + i, column, pooled);
        for (; i < args.ratio; ++i) pool_tokens<1>(args, first_position, first + i, column, pooled);
    }
    return pooled.weighted / pooled.sum;
}

/// Norm and rotation of a row whose columns each thread has put at scratch.row; synchronises.
__device__ __forceinline__ void norm_and_rotate(RowScratch& scratch, const RopeAngles& angles,
                                                const float* norm_weight, std::uint64_t position,
                                                std::uint32_t dim, float epsilon) {
    float squares = 0.0f;
    for (std::uint32_t c = threadIdx.x; c < dim; c += blockDim.x)
        squares += scratch.row[c] * scratch.row[c];
    fill_rotation(scratch.rotation, angles, position);
    const float mean = block_sum(squares, scratch.partials) / static_cast<float>(dim);
    const float scale = 1.0f / sqrtf(mean + epsilon);
    for (std::uint32_t c = threadIdx.x; c < dim; c += blockDim.x)
        scratch.row[c] = scratch.row[c] * scale * norm_weight[c];
    __syncthreads();
    if (threadIdx.x < angles.n_pairs) {
        float* pair = scratch.row + dim - 2 * angles.n_pairs + 2 * threadIdx.x;
        const float2 v = rotate(make_float2(pair[0], pair[1]), scratch.rotation[threadIdx.x]);
        pair[0] = v.x;
        pair[1] = v.y;
    }
    __syncthreads();
}

/// The finished row of a window into its region; a block of threads.
__device__ __forceinline__ void emit_row(const CompressorArgs& args, RowScratch& scratch,
                                         std::uint64_t first_position, std::uint64_t window) {
    for (std::uint32_t c = threadIdx.x; c < args.dim; c += blockDim.x)
        scratch.row[c] = pool_column(args, first_position, window, c);
    norm_and_rotate(scratch, args.angles, args.norm_weight, window * args.ratio, args.dim,
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

/// Copies the newest token of state row `row` into it; nothing where the chunk has none.
__device__ __forceinline__ void update_row(const CompressorArgs& args, std::uint64_t first_position,
                                           std::uint32_t in_window, std::uint32_t column) {
    const std::uint64_t end = first_position + args.n_tokens;
    if (end <= in_window) return;
    const std::uint64_t newest = end - 1 - (end - 1 - in_window) % args.ratio;
    if (newest < first_position) return;
    const float2 token = token_column(args, first_position, newest, column);
    const std::uint64_t at = std::uint64_t{current_row(args.ratio, newest)} * args.width + column;
    args.state_kv[at] = token.x;
    args.state_score[at] = token.y;
}

/// One column of the state's tokens `in_window` of their windows, as token-by-token decoding would
/// leave it. With overlap the last finished window's token moves to the previous window's rows
/// first: it may come from the row that the newest token then takes.
__device__ __forceinline__ void update_state(const CompressorArgs& args,
                                             std::uint64_t first_position, std::uint32_t in_window,
                                             std::uint32_t column) {
    if (args.ratio == kOverlapRatio) {
        const std::uint64_t window = (first_position + args.n_tokens) / kOverlapRatio;
        if (window > first_position / kOverlapRatio) {
            const float2 token = token_column(args, first_position,
                                              (window - 1) * kOverlapRatio + in_window, column);
            const std::uint64_t at = std::uint64_t{in_window} * args.width + column;
            args.state_kv[at] = token.x;
            args.state_score[at] = token.y;
        }
    }
    update_row(args, first_position, in_window, column);
}

}  // namespace plimsoll::kernels::cuda
