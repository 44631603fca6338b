#include <algorithm>

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/indexer.cuh"
#include "kernels/cuda/indexer_f32.cuh"
#include "kernels/cuda/top_rows.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// Scores of one token. At 28,672 tokens of context 7,168 rows of 68 bytes and 117 MFLOP: latency.
// Every block brings all 64 queries to their final form (8 a warp), while its first rows are on the
// way, and then a warp takes 8 rows at a time straight from their codes to the tensor cores.

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kBlockRows = kWarps * kRowTile;
static_assert(kThreads == kPlainThreads);

struct QueryFinish {
    RopeAngles angles;
    bool rounds;
};

/// The queries as halves and the weights with every scale, zeros for heads that do not exist.
template <std::uint32_t kDim>
struct FinishedQueries {
    uint4 halves[kHeadsMax * kDim / 8];
    float weights[kHeadsMax];
};

template <std::uint32_t kDim>
__device__ __forceinline__ void finish_head(const IndexerScoring& p, const float2* rotation,
                                            const QueryFinish& finish, std::uint32_t head,
                                            FinishedQueries<kDim>& queries) {
    constexpr std::uint32_t kPerLane = kDim / kWarp, kOwn = kDim / 4;
    const std::uint32_t lane = threadIdx.x % kWarp;
    float v[kPerLane] = {};
    if (head < p.n_heads) {
        load_query<kPerLane>(v, p.queries + head * kDim);
        finish_query<kPerLane>(v, rotation, finish.angles.n_pairs, finish.rounds);
    }
    float amax = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < kPerLane; ++i) amax = fmaxf(amax, fabsf(v[i]));
    const std::int32_t exponent = head_exponent(warp_max(amax));
    const float inverse = reciprocal_power(exponent);
    const std::uint32_t at = lane * kPerLane, c = at / kOwn, i = at % kOwn / 8;
    auto* to = reinterpret_cast<__half*>(&queries.halves[unit_of<kDim>(head, c, i)]) + at % 8;
#pragma unroll
    for (std::uint32_t e = 0; e < kPerLane; ++e) to[e] = __float2half_rn(v[e] * inverse);
    if (lane == 0)
        queries.weights[head] =
            head < p.n_heads ? p.head_weights[head] * p.weight_scale * power_of_two_f32(exponent)
                             : 0.0f;
}

template <std::uint32_t kDim>
__device__ __forceinline__ void fragments_of(const FinishedQueries<kDim>& queries,
                                             QueryFragments<kDim>& fragments) {
    const std::uint32_t g = threadIdx.x % kWarp / 4, c = threadIdx.x % 4;
#pragma unroll
    for (std::uint32_t half = 0; half < 2 * kHeadTiles; ++half) {
        const std::uint32_t head = 8 * half + g;
        std::uint32_t own[kDim / 8];
#pragma unroll
        for (std::uint32_t i = 0; i < kDim / 32; ++i)
            memcpy(&own[4 * i], &queries.halves[unit_of<kDim>(head, c, i)], sizeof(uint4));
#pragma unroll
        for (std::uint32_t s = 0; s < kDim / 16; ++s) {
            fragments.halves[half / 2][s][half % 2] = own[2 * s];
            fragments.halves[half / 2][s][2 + half % 2] = own[2 * s + 1];
        }
        fragments.weights[half] = queries.weights[head];
    }
}

template <std::uint32_t kPerLane>
__global__ void __launch_bounds__(kThreads)
    decode_scores_f32(const IndexerScoring p, const QueryFinish finish, const StepState* state) {
    __shared__ float2 rotation[kRopeDimMax / 2];
    auto* queries = reinterpret_cast<float*>(dynamic_shared());
    constexpr std::uint32_t kDim = kPerLane * kWarp;
    allow_next_kernel();
    wait_for_previous_kernel();
    const std::uint32_t n_visible = visible_rows(state, 0, p.ratio);
    if (n_visible <= p.top_k || blockIdx.x * kPlainRows >= n_visible) return;
    fill_rotation(rotation, finish.angles, state->position);
    __syncthreads();
    for (std::uint32_t head = threadIdx.x / kWarp; head < p.n_heads; head += kWarps) {
        float v[kPerLane];
        load_query<kPerLane>(v, p.queries + head * kDim);
        finish_query<kPerLane>(v, rotation, finish.angles.n_pairs, finish.rounds);
        store_query<kPerLane>(v, queries + head * plain_stride(kDim));
    }
    plain_scores(p, queries, p.head_weights, queries + p.n_heads * plain_stride(kDim),
                 min(n_visible, p.row_capacity), blockIdx.x, gridDim.x, p.scores);
}

// The choice. A block of 1,024 threads holds 8,192 scores in registers, all there are up to 32,768
// tokens of context, one of 256 threads a quarter of them. Longer lists are cut into segments of
// that many, a block each, which keep their own best in place; the block that finishes last chooses
// among those. Ascending rows stay ascending throughout, so ties still go to the lower row.

constexpr std::uint32_t kChooseThreads = 1024;

struct ChooseRows {
    float* scores;  // of segments: overwritten by their best top_k scores, then those rows' ids
    std::int32_t* selected;
    std::int32_t* selected_count;
    std::uint32_t row_capacity;
    std::uint32_t top_k;
    std::uint32_t ratio;
};

struct SegmentScores {
    float* scores;
    std::uint32_t first_row;
    std::uint32_t top_k;

    __device__ __forceinline__ float score_at(std::uint32_t i) const { return __ldcg(scores + i); }
    __device__ __forceinline__ void keep(std::uint32_t position, std::uint32_t i,
                                         float score) const {
        scores[position] = score;
        scores[top_k + position] = __uint_as_float(first_row + i);
    }
};

struct BestOfSegments {
    const float* scores;
    std::int32_t* selected;
    std::uint32_t top_k;
    std::uint32_t segment_rows;

    __device__ __forceinline__ const float* place_of(std::uint32_t i) const {
        return scores + std::uint64_t{i / top_k} * segment_rows + i % top_k;
    }
    __device__ __forceinline__ float score_at(std::uint32_t i) const { return __ldcg(place_of(i)); }
    __device__ __forceinline__ void keep(std::uint32_t position, std::uint32_t i, float) const {
        selected[position] =
            static_cast<std::int32_t>(__float_as_uint(__ldcg(place_of(i) + top_k)));
    }
};

/// True in the last of `n_blocks` blocks to come here, which then sees what the others wrote. The
/// counter is left at zero.
__device__ __forceinline__ bool is_last_block(std::uint32_t* counter, std::uint32_t n_blocks) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = add_release(counter, 1) == n_blocks - 1;
        if (is_last) *counter = 0;
    }
    __syncthreads();
    return is_last;
}

/// How a block of kBlockThreads chooses: scores a thread that it holds of few rows, of a segment,
/// and of the best of all segments.
template <std::uint32_t kBlockThreads, std::uint32_t kFew, std::uint32_t kMany,
          std::uint32_t kOfSegments>
struct Choice {
    static constexpr std::uint32_t kSegmentRows = kMany * kBlockThreads;
    using Shared = TopShared<kBlockThreads>;

    /// A segment has room for its best scores and their rows; where it has not, one block does all.
    static __host__ __device__ constexpr std::uint32_t segments(std::uint32_t n_rows,
                                                                std::uint32_t top_k) {
        return 2 * top_k <= kSegmentRows ? (n_rows + kSegmentRows - 1) / kSegmentRows : 1;
    }
    /// Blocks [0, n_blocks) of the launch together.
    static __device__ __forceinline__ void run(const ChooseRows& p, std::uint32_t n_rows,
                                               std::uint32_t n_blocks, StepState* state,
                                               Shared& shared) {
        const std::uint32_t n_segments = segments(n_rows, p.top_k);
        if (n_segments <= 1) {
            if (blockIdx.x == 0)
                select_rows<kBlockThreads, kFew, kMany>(PlainScores{p.scores, p.selected}, n_rows,
                                                        p.top_k, shared);
            return;
        }
        if (blockIdx.x >= n_segments) return;
        for (std::uint32_t segment = blockIdx.x; segment < n_segments; segment += n_blocks) {
            const std::uint32_t first = segment * kSegmentRows;
            __syncthreads();
            select_rows<kBlockThreads, kFew, kMany>(SegmentScores{p.scores + first, first, p.top_k},
                                                    min(n_rows - first, kSegmentRows), p.top_k,
                                                    shared);
        }
        if (!is_last_block(state->counters[static_cast<std::uint32_t>(Counter::indexer)],
                           min(n_segments, n_blocks)))
            return;
        const std::uint32_t last_rows = n_rows - (n_segments - 1) * kSegmentRows;
        select_rows<kBlockThreads, kFew, kOfSegments>(
            BestOfSegments{p.scores, p.selected, p.top_k, kSegmentRows},
            (n_segments - 1) * p.top_k + min(last_rows, p.top_k), p.top_k, shared);
    }
};
using PlainChoice = Choice<kChooseThreads, 8, 8, 12>;
using ScoredChoice = Choice<kThreads, 4, 8, 16>;

__device__ __forceinline__ void count_selected(const ChooseRows& p, std::uint32_t n_rows) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *p.selected_count = static_cast<std::int32_t>(min(n_rows, p.top_k));
}

__global__ void __launch_bounds__(kChooseThreads)
    choose_rows(const ChooseRows p, StepState* state) {
    __shared__ PlainChoice::Shared shared;
    allow_next_kernel();
    wait_for_previous_kernel();
    const std::uint32_t n_rows = min(visible_rows(state, 0, p.ratio), p.row_capacity);
    count_selected(p, n_rows);
    PlainChoice::run(p, n_rows, gridDim.x, state, shared);
}

template <std::uint32_t kDim>
__global__ void __launch_bounds__(kThreads)
    decode_select_packed(const IndexerScoring p, const QueryFinish finish, const ChooseRows choice,
                         StepState* state) {
    __shared__ float2 rotation[kRopeDimMax / 2];
    __shared__ FinishedQueries<kDim> queries;
    __shared__ ScoredChoice::Shared best;
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::uint32_t g = lane / 4, c = lane % 4;
    allow_next_kernel();
    wait_for_previous_kernel();
    std::uint32_t row = blockIdx.x * kBlockRows + warp * kRowTile;
    RowShare<kDim> share = load_row_share<kDim>(p, row + g, c);
    const std::uint32_t n_visible = visible_rows(state, 0, p.ratio);
    const std::uint32_t n_rows = min(n_visible, p.row_capacity);
    count_selected(choice, n_rows);
    if (n_visible <= p.top_k) {
        for (std::uint32_t i = threadIdx.x; blockIdx.x == 0 && i < n_rows; i += kThreads)
            choice.selected[i] = static_cast<std::int32_t>(i);
        return;
    }
    const std::uint32_t n_blocks = min((n_rows + kBlockRows - 1) / kBlockRows, gridDim.x);
    if (blockIdx.x >= n_blocks) return;
    std::uint32_t* counter = &state->counters[static_cast<std::uint32_t>(Counter::indexer)][1];
    const std::uint32_t before = before_meeting(counter);
    fill_rotation(rotation, finish.angles, state->position);
    __syncthreads();
#pragma unroll 2
    for (std::uint32_t head = warp; head < kHeadsMax; head += kWarps)
        finish_head<kDim>(p, rotation, finish, head, queries);
    __syncthreads();

    QueryFragments<kDim> fragments;
    fragments_of<kDim>(queries, fragments);
    for (; row < n_rows; row += gridDim.x * kBlockRows) {
        std::uint32_t halves[kDim / 8];
        decode_row_share<kDim>(share, c, halves);
        const float scale = row_scale(row_exponent<kDim>(share.exponents));
        if (row + gridDim.x * kBlockRows < n_rows)
            share = load_row_share<kDim>(p, row + gridDim.x * kBlockRows + g, c);
        float sums[2];
        score_tile<kDim>(fragments, halves, sums);
#pragma unroll
        for (std::uint32_t e = 0; e < 2; ++e) {
            // In the order of the chunks' kernel.
            for (int mask = 16; mask >= 4; mask /= 2)
                sums[e] += __shfl_xor_sync(kAllLanes, sums[e], mask);
            const float own_scale =
                __shfl_sync(kAllLanes, scale, static_cast<int>(4 * (2 * c + e)));
            const std::uint32_t at = row + 2 * c + e;
            if (g == 0 && at < n_rows) p.scores[at] = sums[e] * own_scale;
        }
    }
    meet_blocks(counter, n_blocks, blockIdx.x == 0, before);
    ScoredChoice::run(choice, n_rows, n_blocks, state, best);
}

template <std::uint32_t kPerLane>
void launch_f32(const IndexerScoring& scoring, const QueryFinish& finish, const Launch& launch) {
    const std::uint64_t shared_bytes = plain_shared_bytes(scoring.n_heads, scoring.dim);
    PLIMSOLL_KERNEL_CHECK(shared_bytes + 2048 <= shared_bytes_max(),
                          "a token's indexer queries do not fit in shared memory");
    const std::uint32_t tiles = (scoring.row_capacity + kPlainRows - 1) / kPlainRows;
    launch_kernel(decode_scores_f32<kPerLane>,
                  {.grid = std::min(tiles, 2 * launch.n_multiprocessors),
                   .block = kThreads,
                   .shared_bytes = static_cast<std::uint32_t>(shared_bytes)},
                  launch, scoring, finish, launch.state);
}

void launch_scores_f32(const IndexerScoring& scoring, const QueryFinish& finish,
                       const Launch& launch) {
    switch (scoring.dim) {
        case 32: return launch_f32<1>(scoring, finish, launch);
        case 64: return launch_f32<2>(scoring, finish, launch);
        case 128: return launch_f32<4>(scoring, finish, launch);
        case 256: return launch_f32<8>(scoring, finish, launch);
        default:
            PLIMSOLL_KERNEL_CHECK(scoring.dim == 512, "indexer dims are 32 to 512, a power of two");
            launch_f32<16>(scoring, finish, launch);
    }
}

ChooseRows choose_rows_of(const DecodeIndexerParams& params) {
    return {params.scores, params.selected, params.selected_count, params.rows.row_capacity,
            params.top_k,  params.ratio};
}

}  // namespace

void decode_indexer_select(const DecodeIndexerParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.dim == params.rows.dim, "queries and rows have one width");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim <= params.dim, "rope dims are part of the head");
    PLIMSOLL_KERNEL_CHECK(params.top_k > 0, "nothing to select");
    IndexerScoring scoring =
        indexer_scoring(params.rows, params.n_heads, params.top_k, params.ratio);
    scoring.queries = params.queries;
    scoring.head_weights = params.head_weights;
    scoring.scores = params.scores;
    const QueryFinish finish{rope_angles(params.rope), params.rounding == CacheRounding::on};
    if (!scores_on_tensor_cores(scoring)) {
        launch_scores_f32(scoring, finish, launch);
        decode_indexer_choose(params, launch);
        return;
    }
    const std::uint32_t groups = (scoring.row_capacity + kBlockRows - 1) / kBlockRows;
    const Shape shape{.grid = std::min(groups, launch.n_multiprocessors),
                      .block = kThreads,
                      .all_blocks_resident = true};
    const auto select = [&](auto kernel) {
        launch_kernel(kernel, shape, launch, scoring, finish, choose_rows_of(params), launch.state);
    };
    switch (params.dim) {
        case 128: return select(decode_select_packed<128>);
        case 64: return select(decode_select_packed<64>);
        default: return select(decode_select_packed<32>);
    }
}

void decode_indexer_choose(const DecodeIndexerParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.top_k > 0, "nothing to select");
    const std::uint32_t n_segments =
        std::max(PlainChoice::segments(params.rows.row_capacity, params.top_k), 1u);
    launch_kernel(choose_rows, {.grid = n_segments, .block = kChooseThreads}, launch,
                  choose_rows_of(params), launch.state);
}

}  // namespace plimsoll::kernels::cuda
