#include <algorithm>
#include <cmath>

#include "kernels/cuda/indexer.cuh"
#include "kernels/cuda/indexer_f32.cuh"
#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/top_rows.cuh"

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint64_t kScratchBytes = std::uint64_t{32} << 20;

// Queries.

constexpr std::uint32_t kQueryThreads = 256;

struct QueryRows {
    float* queries;
    std::uint32_t n_heads;
    bool rounds;
};

/// A block a token, a warp a head: 64 KB read and written a token.
template <std::uint32_t kPerLane>
__global__ void __launch_bounds__(kQueryThreads)
    finish_queries(const QueryRows p, const RopeAngles angles, const StepState* state) {
    __shared__ float2 rotation[kRopeDimMax / 2];
    constexpr std::uint32_t kDim = kPerLane * kWarp;
    wait_for_previous_kernel();
    allow_next_kernel();
    fill_rotation(rotation, angles, state->position + blockIdx.x);
    __syncthreads();
    for (std::uint32_t head = threadIdx.x / kWarp; head < p.n_heads;
         head += kQueryThreads / kWarp) {
        float* query = p.queries + (std::uint64_t{blockIdx.x} * p.n_heads + head) * kDim;
        float values[kPerLane];
        load_query<kPerLane>(values, query);
        finish_query<kPerLane>(values, rotation, angles.n_pairs, p.rounds);
        store_query<kPerLane>(values, query);
    }
}

// Scores on tensor cores: 64 heads x 128 x rows x 2, 117 MFLOP a token at 28,672 tokens of context.
// A warp keeps a token's 64 queries as fragments in registers (128 of them), a block is 8 tokens
// that share tiles of 64 rows, decoded once into shared memory: 8 matrix instructions for each
// 16-byte load of a lane, so that the tensor cores are what limits.

constexpr std::uint32_t kScoreThreads = 256;
constexpr std::uint32_t kScoreTokens = kScoreThreads / kWarp;
constexpr std::uint32_t kScoreRows = 64;      // of a tile in shared memory
constexpr std::uint32_t kScoreRowsMin = 512;  // of a block, which first loads 256 KB of queries
constexpr std::uint32_t kScoreRowsMax = 2048;

struct ScoreTile {
    IndexerScoring scoring;
    std::uint32_t token_first;  // of the step; queries, weights and scores are those of the pass
    std::uint32_t n_tokens;
    std::uint32_t block_rows;  // a multiple of kScoreRows
};

/// Fragments of one token's queries from global memory.
template <std::uint32_t kDim>
__device__ __forceinline__ void load_fragments(const IndexerScoring& p, const float* queries,
                                               const float* weights,
                                               QueryFragments<kDim>& fragments) {
    constexpr std::uint32_t kOwn = kDim / 4;
    const std::uint32_t g = threadIdx.x % kWarp / 4, c = threadIdx.x % 4;
#pragma unroll
    for (std::uint32_t half = 0; half < 2 * kHeadTiles; ++half) {
        const std::uint32_t head = 8 * half + g;
        // Heads that do not exist repeat head 0, with weight 0.
        const bool exists = head < p.n_heads;
        const float* from = queries + (exists ? head : 0) * kDim + c * kOwn;
        float own[kOwn];
        float amax = 0.0f;
#pragma unroll
        for (std::uint32_t i = 0; i < kOwn; i += 4) {
            const float4 v = *reinterpret_cast<const float4*>(from + i);
            memcpy(&own[i], &v, sizeof(v));
            amax = fmaxf(fmaxf(amax, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
        }
        amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 1));
        amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, 2));
        const std::int32_t exponent = head_exponent(amax);
        const float inverse = reciprocal_power(exponent);
#pragma unroll
        for (std::uint32_t s = 0; s < kDim / 16; ++s) {
            const float* v = own + 4 * s;
            fragments.halves[half / 2][s][half % 2] = pack_halves(v[0] * inverse, v[1] * inverse);
            fragments.halves[half / 2][s][2 + half % 2] =
                pack_halves(v[2] * inverse, v[3] * inverse);
        }
        fragments.weights[half] =
            exists ? weights[head] * p.weight_scale * power_of_two_f32(exponent) : 0.0f;
        __syncwarp();  // keeps the compiler from having more than one head's floats at a time
    }
}

/// Adds the 8 lanes that share c, for 8 values a lane: lane 4g + c is left with the sum of value
/// (lane bits 4, 3, 2). In the order of a butterfly over lane bits 4, 3, 2.
__device__ __forceinline__ float sum_and_scatter(const float (&values)[8]) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    float four[4], two[2];
    const bool upper16 = (lane & 16u) != 0, upper8 = (lane & 8u) != 0, upper4 = (lane & 4u) != 0;
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)
        four[i] = (upper16 ? values[4 + i] : values[i]) +
                  __shfl_xor_sync(kAllLanes, upper16 ? values[i] : values[4 + i], 16);
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i)
        two[i] = (upper8 ? four[2 + i] : four[i]) +
                 __shfl_xor_sync(kAllLanes, upper8 ? four[i] : four[2 + i], 8);
    return (upper4 ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, upper4 ? two[0] : two[1], 4);
}

template <std::uint32_t kDim>
struct RowTile {
    uint4 halves[kScoreRows * kDim / 8];
    float scales[kScoreRows];
};

/// A thread's share of a row of the tile (rows of 4 threads each) into shared memory.
template <std::uint32_t kDim>
__device__ __forceinline__ void store_row_share(const RowShare<kDim>& share, RowTile<kDim>& tile) {
    const std::uint32_t row = threadIdx.x / 4, c = threadIdx.x % 4;
    std::uint32_t halves[kDim / 8];
    decode_row_share<kDim>(share, c, halves);
#pragma unroll
    for (std::uint32_t i = 0; i < kDim / 32; ++i)
        tile.halves[unit_of<kDim>(row, c, i)] =
            make_uint4(halves[4 * i], halves[4 * i + 1], halves[4 * i + 2], halves[4 * i + 3]);
    if (c == 0) tile.scales[row] = row_scale(row_exponent<kDim>(share.exponents));
}

/// A warp's token with a tile of 64 rows, 32 at a time.
template <std::uint32_t kDim>
__device__ __forceinline__ void score_row_tile(const QueryFragments<kDim>& fragments,
                                               const RowTile<kDim>& tile, std::uint32_t first,
                                               std::uint32_t n_rows, float* scores) {
    const std::uint32_t lane = threadIdx.x % kWarp, g = lane / 4, c = lane % 4;
#pragma unroll 1
    for (std::uint32_t base = 0; base < kScoreRows; base += kWarp) {
        float sums[8];
#pragma unroll
        for (std::uint32_t n = 0; n < 4; ++n) {
            std::uint32_t row[kDim / 8];
#pragma unroll
            for (std::uint32_t i = 0; i < kDim / 32; ++i)
                memcpy(&row[4 * i], &tile.halves[unit_of<kDim>(base + 8 * n + g, c, i)], 16);
            float pair[2];
            score_tile<kDim>(fragments, row, pair);
            sums[2 * n] = pair[0];
            sums[2 * n + 1] = pair[1];
            __syncwarp();  // the next tile's loads stay behind it: registers are full
        }
        const float sum = sum_and_scatter(sums);
        const std::uint32_t at = base + lane / 8 * 8 + 2 * c + (lane / 4 & 1u);
        if (first + at < n_rows) scores[first + at] = sum * tile.scales[at];
    }
}

/// Grid: groups of rows, groups of 8 tokens.
template <std::uint32_t kDim>
__global__ void __launch_bounds__(kScoreThreads)
    score_packed_rows(const ScoreTile p, const StepState* state) {
    __shared__ RowTile<kDim> tiles[2];
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t token = blockIdx.y * kScoreTokens + threadIdx.x / kWarp;
    const std::uint32_t last_token = min((blockIdx.y + 1) * kScoreTokens, p.n_tokens) - 1;
    const std::uint32_t n_visible =
        visible_rows(state, p.token_first + last_token, p.scoring.ratio);
    const std::uint32_t first = blockIdx.x * p.block_rows;
    const std::uint32_t n_rows = min(min(n_visible, first + p.block_rows), p.scoring.row_capacity);
    if (n_visible <= p.scoring.top_k || first >= n_rows) return;

    const std::uint32_t row = threadIdx.x / 4, c = threadIdx.x % 4;
    RowShare<kDim> share = load_row_share<kDim>(p.scoring, first + row, c);
    const std::uint64_t own = min(token, last_token);  // warps past the end repeat the last token
    QueryFragments<kDim> fragments;
    load_fragments<kDim>(p.scoring, p.scoring.queries + own * p.scoring.n_heads * kDim,
                         p.scoring.head_weights + own * p.scoring.n_heads, fragments);
    float* scores = p.scoring.scores + own * p.scoring.row_capacity;
    std::uint32_t buffer = 0;
    for (std::uint32_t at = first; at < n_rows; at += kScoreRows, buffer ^= 1u) {
        store_row_share<kDim>(share, tiles[buffer]);
        __syncthreads();  // the other buffer's readers have gone on to this one by the next barrier
        if (at + kScoreRows < n_rows)
            share = load_row_share<kDim>(p.scoring, at + kScoreRows + row, c);
        if (token <= last_token) score_row_tile<kDim>(fragments, tiles[buffer], at, n_rows, scores);
    }
}

/// Grid: groups of tiles, tokens.
__global__ void __launch_bounds__(kPlainThreads)
    score_rows_f32(const ScoreTile p, const StepState* state) {
    auto* queries = reinterpret_cast<float*>(dynamic_shared());
    const IndexerScoring& s = p.scoring;
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint64_t token = blockIdx.y;
    const std::uint32_t n_visible = visible_rows(state, p.token_first + blockIdx.y, s.ratio);
    if (n_visible <= s.top_k || blockIdx.x * kPlainRows >= n_visible) return;
    const float* from = s.queries + token * s.n_heads * s.dim;
    for (std::uint32_t at = threadIdx.x; at < s.n_heads * s.dim; at += kPlainThreads)
        queries[at / s.dim * plain_stride(s.dim) + at % s.dim] = from[at];
    plain_scores(s, queries, s.head_weights + token * s.n_heads,
                 queries + s.n_heads * plain_stride(s.dim), min(n_visible, s.row_capacity),
                 blockIdx.x, gridDim.x, s.scores + token * s.row_capacity);
}

// Selection: a block a token.

constexpr std::uint32_t kSelectThreads = 256;

struct SelectRows {
    const float* scores;  // [n_tokens, row_capacity] of the pass
    std::int32_t* selected;
    std::int32_t* selected_count;
    std::uint32_t token_first;
    std::uint32_t row_capacity;
    std::uint32_t top_k;
    std::uint32_t ratio;
};

__global__ void __launch_bounds__(kSelectThreads, 3)
    select_of_tokens(const SelectRows p, const StepState* state) {
    __shared__ TopShared<kSelectThreads> shared;
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t token = p.token_first + blockIdx.x;
    const std::uint32_t n_rows = min(visible_rows(state, token, p.ratio), p.row_capacity);
    if (threadIdx.x == 0) p.selected_count[token] = static_cast<std::int32_t>(min(n_rows, p.top_k));
    const PlainScores source{p.scores + std::uint64_t{blockIdx.x} * p.row_capacity,
                             p.selected + std::uint64_t{token} * p.top_k};
    select_rows<kSelectThreads, 8, 32>(source, n_rows, p.top_k, shared);
}

std::uint32_t tokens_at_once(std::uint32_t n_tokens, std::uint32_t row_capacity) {
    const std::uint64_t row_bytes = std::max<std::uint64_t>(row_capacity, 1) * sizeof(float);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        kScratchBytes / row_bytes, 1, std::max<std::uint64_t>(n_tokens, 1)));
}

void launch_scores(const ScoreTile& tile, const Launch& launch) {
    const IndexerScoring& s = tile.scoring;
    if (!scores_on_tensor_cores(s)) {
        const std::uint64_t shared_bytes = plain_shared_bytes(s.n_heads, s.dim);
        PLIMSOLL_KERNEL_CHECK(shared_bytes + 2048 <= shared_bytes_max(),
                              "a token's indexer queries do not fit in shared memory");
        const std::uint32_t tiles = (s.row_capacity + kPlainRows - 1) / kPlainRows;
        launch_kernel(score_rows_f32,
                      {.grid = {std::min(tiles, 64u), tile.n_tokens},
                       .block = kPlainThreads,
                       .shared_bytes = static_cast<std::uint32_t>(shared_bytes)},
                      launch, tile, launch.state);
        return;
    }
    const Shape shape{.grid = {(s.row_capacity + tile.block_rows - 1) / tile.block_rows,
                               (tile.n_tokens + kScoreTokens - 1) / kScoreTokens},
                      .block = kScoreThreads};
    switch (s.dim) {
        case 128: launch_kernel(score_packed_rows<128>, shape, launch, tile, launch.state); return;
        case 64: launch_kernel(score_packed_rows<64>, shape, launch, tile, launch.state); return;
        default: launch_kernel(score_packed_rows<32>, shape, launch, tile, launch.state);
    }
}

/// Enough rows a block to pay for its queries, and enough blocks for the device.
std::uint32_t rows_of_block(std::uint32_t n_tokens, std::uint32_t row_capacity,
                            std::uint32_t n_multiprocessors) {
    const std::uint64_t token_groups = (n_tokens + kScoreTokens - 1) / kScoreTokens;
    std::uint32_t rows = kScoreRowsMax;
    while (rows > kScoreRowsMin &&
           token_groups * (row_capacity / rows + 1) < 4 * std::uint64_t{n_multiprocessors})
        rows /= 2;
    return rows;
}

}  // namespace

void indexer_query(const IndexerQueryParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim <= params.dim, "rope dims are part of the head");
    const QueryRows rows{params.queries, params.n_heads, params.rounding == CacheRounding::on};
    const RopeAngles angles = rope_angles(params.rope);
    const Shape shape{.grid = params.n_tokens, .block = kQueryThreads};
    switch (params.dim) {
        case 32:
            launch_kernel(finish_queries<1>, shape, launch, rows, angles, launch.state);
            return;
        case 64:
            launch_kernel(finish_queries<2>, shape, launch, rows, angles, launch.state);
            return;
        case 128:
            launch_kernel(finish_queries<4>, shape, launch, rows, angles, launch.state);
            return;
        case 256:
            launch_kernel(finish_queries<8>, shape, launch, rows, angles, launch.state);
            return;
        default:
            PLIMSOLL_KERNEL_CHECK(params.dim == 512, "indexer dims are 32 to 512, a power of two");
            launch_kernel(finish_queries<16>, shape, launch, rows, angles, launch.state);
    }
}

std::uint64_t indexer_select_workspace_bytes(std::uint32_t n_tokens, std::uint32_t row_capacity) {
    return std::uint64_t{tokens_at_once(n_tokens, row_capacity)} *
           std::max<std::uint64_t>(row_capacity, 1) * sizeof(float);
}

void indexer_select(const IndexerSelectParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.dim == params.rows.dim, "queries and rows have one width");
    PLIMSOLL_KERNEL_CHECK(params.dim % 32 == 0 && params.dim <= kHeadDimMax,
                          "indexer rows are wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.top_k > 0, "nothing to select");
    const std::uint32_t row_capacity = params.rows.row_capacity;
    const std::uint32_t at_once = tokens_at_once(params.n_tokens, row_capacity);
    IndexerScoring scoring =
        indexer_scoring(params.rows, params.n_heads, params.top_k, params.ratio);
    scoring.scores = static_cast<float*>(params.workspace);
    for (std::uint32_t first = 0; first < params.n_tokens; first += at_once) {
        const std::uint32_t n_tokens = std::min(at_once, params.n_tokens - first);
        scoring.queries = params.queries + std::uint64_t{first} * params.n_heads * params.dim;
        scoring.head_weights = params.head_weights + std::uint64_t{first} * params.n_heads;
        // Where the region holds no more rows than are kept, no token ever needs a score.
        if (row_capacity > params.top_k)
            launch_scores({scoring, first, n_tokens,
                           rows_of_block(n_tokens, row_capacity, launch.n_multiprocessors)},
                          launch);
        launch_kernel(select_of_tokens, {.grid = n_tokens, .block = kSelectThreads}, launch,
                      SelectRows{scoring.scores, params.selected, params.selected_count, first,
                                 row_capacity, params.top_k, params.ratio},
                      launch.state);
    }
}

}  // namespace plimsoll::kernels::cuda
