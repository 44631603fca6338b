#include <cmath>

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/decode_attention.cuh"

// Attention of one token. A block takes 16 heads and a split of the rows, in tiles of 32: at 64
// heads and 640 rows that is 4 x 20 blocks, each with 19 KB of packed rows and 32 KB of queries
// from L2 to read, and 84 MFLOP of tensor-core work in all; what counts is the chain of latencies.
// Blocks of a head group then meet, and each combines a share of the group's outputs: 33 KB of
// partial sums a block, where a single last block would read 655 KB alone.
//
// Splits follow from rows_max, never from the grid: where a chip has room for fewer blocks, a block
// takes several splits in turn, and the bits are the same.

namespace plimsoll::kernels::cuda {
namespace {

using namespace decode;

/// A warp's two heads as loaded, before position and rotation are known.
template <int kHeadDim>
struct RawQueries {
    static constexpr int kParts = kHeadDim / 128;  // of 4 floats a lane
    float4 v[2][kParts];
};

template <int kHeadDim>
__device__ __forceinline__ void fetch_queries(RawQueries<kHeadDim>& raw, const DecodeArgs& args,
                                              std::uint32_t head_first) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t head_dim = args.rows.head_dim;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::uint32_t head = head_first + threadIdx.x / kWarp * 2 + i;
        const float* q = args.q + std::uint64_t{head} * head_dim;
#pragma unroll
        for (int part = 0; part < RawQueries<kHeadDim>::kParts; ++part) {
            const std::uint32_t first = (lane + part * kWarp) * 4;
            raw.v[i][part] = head < args.n_heads && first < head_dim
                                 ? *reinterpret_cast<const float4*>(q + first)
                                 : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
}

/// Norm, rotation and scale; float16 into shared memory.
template <int kHeadDim>
__device__ __forceinline__ void finish_queries(DecodeShared<kHeadDim>& shared,
                                               const RawQueries<kHeadDim>& raw,
                                               const DecodeArgs& args) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t rope_first = head_dim - 2 * args.angles.n_pairs;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float squares = 0.0f;
#pragma unroll
        for (int part = 0; part < RawQueries<kHeadDim>::kParts; ++part) {
            const float4 v = raw.v[i][part];
            squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
        const float mean = warp_sum(squares) * args.head_dim_inverse;
        const float scale = args.logit_scale * rsqrtf(mean + args.rms_epsilon);
        __half* q = shared.q + (threadIdx.x / kWarp * 2 + i) * shared.kRowHalves;
#pragma unroll
        for (int part = 0; part < RawQueries<kHeadDim>::kParts; ++part) {
            const std::uint32_t first = (lane + part * kWarp) * 4;
            const float4 v = raw.v[i][part];
            float2 low = make_float2(v.x * scale, v.y * scale);
            float2 high = make_float2(v.z * scale, v.w * scale);
            if (first >= rope_first && first < head_dim) {
                low = rotate(low, shared.rotation[(first - rope_first) / 2]);
                high = rotate(high, shared.rotation[(first - rope_first) / 2 + 1]);
            }
            *reinterpret_cast<uint2*>(q + first) =
                make_uint2(half_bits(low.x, low.y), half_bits(high.x, high.y));
        }
    }
}

/// This warp's share of the logits: every eighth 16 dims.
template <int kHeadDim>
__device__ __forceinline__ void share_logits(DecodeShared<kHeadDim>& shared) {
    const std::uint32_t warp = threadIdx.x / kWarp;
    const std::uint32_t lane = threadIdx.x % kWarp;
    float logits[kRows / 8][4] = {};
#pragma unroll
    for (std::uint32_t k = 16 * warp; k < kHeadDim; k += 16 * kWarps) {
        std::uint32_t a[4];
        load_a(a, shared.q, shared.kRowHalves, 0, k);
#pragma unroll
        for (std::uint32_t r = 0; r < kRows / 8; r += 2) {
            std::uint32_t b[4];
            load_b_keys(b, shared.tile, shared.kRowHalves, 8 * r, k);
            mma_pair(logits[r], logits[r + 1], a, b);
        }
    }
    float* out = shared.logits[warp] + lane / 4 * kLogitStride + lane % 4 * 2;
#pragma unroll
    for (std::uint32_t r = 0; r < kRows / 8; ++r) {
        *reinterpret_cast<float2*>(out + 8 * r) = make_float2(logits[r][0], logits[r][1]);
        *reinterpret_cast<float2*>(out + 8 * kLogitStride + 8 * r) =
            make_float2(logits[r][2], logits[r][3]);
    }
}

/// A head's softmax over a split's rows, the same in all lanes. The sink joins when splits do.
struct SplitSoftmax {
    float largest;
    float sum;
};

/// Weights of the tile's rows for the warp's two heads, a lane a row.
template <int kHeadDim>
__device__ __forceinline__ void weigh_rows(DecodeShared<kHeadDim>& shared, std::uint32_t n_valid,
                                           SplitSoftmax (&softmax)[2]) {
    const std::uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::uint32_t head = threadIdx.x / kWarp * 2 + i;
        float logit = 0.0f;
#pragma unroll
        for (std::uint32_t warp = 0; warp < kWarps; ++warp)
            logit += shared.logits[warp][head * kLogitStride + lane];
        if (lane >= n_valid) logit = -INFINITY;
        const float largest = fmaxf(softmax[i].largest, warp_max(logit));
        const float rescale = exp2f(softmax[i].largest - largest);
        const float weight = exp2f(logit - largest);
        softmax[i] = {largest, softmax[i].sum * rescale + warp_sum(weight)};
        shared.weights[head * kWeightHalves + lane] = __float2half_rn(weight);
        if (lane == 0) shared.rescale[head] = rescale;
    }
}

/// sums = sums * rescale + weights . rows, for the warp's eighth of the columns.
template <int kHeadDim>
__device__ __forceinline__ void add_values(float (&sums)[kHeadDim / 64][4],
                                           const DecodeShared<kHeadDim>& shared) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const float low = shared.rescale[lane / 4];
    const float high = shared.rescale[lane / 4 + 8];
#pragma unroll
    for (int c = 0; c < kHeadDim / 64; ++c) {
        sums[c][0] *= low;
        sums[c][1] *= low;
        sums[c][2] *= high;
        sums[c][3] *= high;
    }
#pragma unroll
    for (std::uint32_t k = 0; k < kRows; k += 16) {
        std::uint32_t a[4];
        load_a(a, shared.weights, kWeightHalves, 0, k);
#pragma unroll
        for (int c = 0; c < kHeadDim / 64; c += 2) {
            std::uint32_t b[4];
            load_b_values(b, shared.tile, shared.kRowHalves, k,
                          threadIdx.x / kWarp * (kHeadDim / kWarps) + 8 * c);
            mma_pair(sums[c], sums[c + 1], a, b);
        }
    }
}

/// One split's sums for the block's heads, kept for the combination.
template <int kHeadDim>
__device__ __forceinline__ void store_split(const DecodeArgs& args, std::uint32_t split,
                                            const float (&sums)[kHeadDim / 64][4],
                                            const SplitSoftmax (&softmax)[2]) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t warp = threadIdx.x / kWarp;
    const std::uint64_t row =
        std::uint64_t{split} * gridDim.y * kHeads + std::uint64_t{blockIdx.y} * kHeads;
    if (lane < 2)
        args.stats[row + 2 * warp + lane] = lane == 0
                                                ? make_float2(softmax[0].largest, softmax[0].sum)
                                                : make_float2(softmax[1].largest, softmax[1].sum);
#pragma unroll
    for (int c = 0; c < kHeadDim / 64; ++c) {
        const std::uint32_t column = warp * (kHeadDim / kWarps) + 8 * c + lane % 4 * 2;
        if (column >= args.rows.head_dim) continue;
        float* out = args.sums + (row + lane / 4) * args.rows.head_dim + column;
        *reinterpret_cast<float2*>(out) = make_float2(sums[c][0], sums[c][1]);
        *reinterpret_cast<float2*>(out + 8 * args.rows.head_dim) =
            make_float2(sums[c][2], sums[c][3]);
    }
}

/// What a block attends to. Everything but the selected rows follows from the position.
struct BlockRows {
    TokenRows list;
    std::uint64_t position;
    std::uint32_t n_selected;
    std::uint32_t n_tiles;
    std::uint32_t split_tiles;
    std::uint32_t n_used;  // splits that have rows

    __device__ __forceinline__ std::uint32_t first_tile(std::uint32_t split) const {
        return split * split_tiles;
    }
};

__device__ __forceinline__ BlockRows block_rows(const DecodeArgs& args, std::uint64_t position,
                                                std::uint32_t n_selected) {
    BlockRows rows;
    // The ring holds the token's own row already: no row is taken from a chunk.
    rows.list = token_rows_at(args.rows, position, n_selected, 0, position + 1);
    rows.position = position;
    rows.n_selected = n_selected;
    rows.n_tiles = ceil_div(rows.list.n_rows, kRows);
    rows.split_tiles = ceil_div(rows.n_tiles, args.n_splits);
    rows.n_used = ceil_div(rows.n_tiles, rows.split_tiles);
    return rows;
}

/// How many rows an indexer selects at this position.
__device__ __forceinline__ std::uint32_t expected_selected(const DecodeArgs& args,
                                                           std::uint64_t position) {
    if (args.rows.selected == nullptr) return 0;
    const std::uint64_t visible = (position + 1) / args.rows.ratio;
    return static_cast<std::uint32_t>(visible < args.selected_max ? visible : args.selected_max);
}

/// A tile's rows on their way to shared memory.
template <int kHeadDim>
struct TileRows {
    using Decoder = TileDecoder<kHeadDim, kRows, static_cast<int>(kThreads)>;
    RawUnit raw[Decoder::kSteps];

    /// Of the thread's row of a tile.
    static __device__ __forceinline__ std::uint32_t index(const TokenRows& list,
                                                          std::uint32_t tile) {
        return threadIdx.x < kRows ? compressed_index(list, tile * kRows + threadIdx.x) : 0;
    }
    static __device__ __forceinline__ void place(DecodeShared<kHeadDim>& shared,
                                                 const DecodeArgs& args, const TokenRows& list,
                                                 std::uint32_t tile, std::uint32_t index) {
        if (threadIdx.x < kRows)
            shared.places[tile % 2][threadIdx.x] =
                listed_row(args.rows, list, tile * kRows + threadIdx.x, index);
    }
    __device__ __forceinline__ void load(const DecodeShared<kHeadDim>& shared,
                                         const UnitShape& shape, std::uint32_t tile) {
#pragma unroll
        for (std::uint32_t step = 0; step < Decoder::kSteps; ++step)
            Decoder::load(raw[step], shared.places[tile % 2], shape, step);
    }
    __device__ __forceinline__ void store(DecodeShared<kHeadDim>& shared, const UnitShape& shape,
                                          std::uint32_t tile) const {
#pragma unroll
        for (std::uint32_t step = 0; step < Decoder::kSteps; ++step)
            Decoder::store(shared.tile, raw[step], shared.places[tile % 2], shape, step);
    }
    __device__ __forceinline__ void start(DecodeShared<kHeadDim>& shared, const DecodeArgs& args,
                                          const TokenRows& list, std::uint32_t tile,
                                          std::uint32_t index) {
        place(shared, args, list, tile, index);
        __syncthreads();
        load(shared, unit_shape(args.rows), tile);
    }
};

/// One split, whose first tile is on its way. The rows of the next tile are loaded before the
/// products of this one.
template <int kHeadDim>
__device__ __forceinline__ void attend_split(DecodeShared<kHeadDim>& shared, const DecodeArgs& args,
                                             const BlockRows& rows, std::uint32_t split,
                                             TileRows<kHeadDim>& tile_rows) {
    const UnitShape shape = unit_shape(args.rows);
    const std::uint32_t first = rows.first_tile(split);
    const std::uint32_t end = min(first + rows.split_tiles, rows.n_tiles);
    SplitSoftmax softmax[2] = {{-1e30f, 0.0f}, {-1e30f, 0.0f}};
    float sums[kHeadDim / 64][4] = {};
    for (std::uint32_t tile = first; tile < end; ++tile) {
        tile_rows.store(shared, shape, tile);
        if (tile + 1 < end)
            tile_rows.place(shared, args, rows.list, tile + 1,
                            tile_rows.index(rows.list, tile + 1));
        __syncthreads();
        if (tile + 1 < end) tile_rows.load(shared, shape, tile + 1);
        share_logits(shared);
        __syncthreads();
        weigh_rows(shared, rows.list.n_rows - tile * kRows, softmax);
        __syncthreads();
        add_values(sums, shared);
        if (tile + 1 < end) __syncthreads();
    }
    store_split<kHeadDim>(args, split, sums, softmax);
}

/// The position is the same throughout a token's launches, so it is nearly always known before the
/// wait, and with it where the rows are; what an older one gives are places of rows, too. What was
/// taken for granted is checked behind the wait.
template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1) decode_attention_kernel(const DecodeArgs args) {
    auto& shared = *reinterpret_cast<DecodeShared<kHeadDim>*>(dynamic_shared());
    constexpr auto kCounter = static_cast<std::uint32_t>(Counter::attention);
    std::uint32_t* counter = &args.state->counters[kCounter][blockIdx.y];
    const std::uint64_t expected = __ldcg(&args.state->position);
    BlockRows rows = block_rows(args, expected, expected_selected(args, expected));
    fill_rotation(shared.rotation, args.angles, expected);
    std::uint32_t split = blockIdx.x;
    const bool selects = args.rows.selected != nullptr;
    wait_for_previous_kernel();
    allow_next_kernel();
    TileRows<kHeadDim> tile_rows;
    RawQueries<kHeadDim> queries;
    fetch_queries(queries, args, blockIdx.y * kHeads);
    const std::uint64_t position = __ldcg(&args.state->position);
    const std::uint32_t n_selected =
        args.rows.selected != nullptr ? static_cast<std::uint32_t>(*args.rows.selected_count) : 0;
    const std::uint32_t before = before_meeting(counter);
    std::uint32_t tile = rows.first_tile(split);
    std::uint32_t index = tile_rows.index(rows.list, tile);
    if (!selects) tile_rows.start(shared, args, rows.list, tile, index);
    const bool differs = position != rows.position || n_selected != rows.n_selected;
    if (differs) {
        __syncthreads();
        rows = block_rows(args, position, n_selected);
        fill_rotation(shared.rotation, args.angles, position);
        tile = rows.first_tile(split);
        index = tile_rows.index(rows.list, tile);
    }
    if (selects || differs) tile_rows.start(shared, args, rows.list, tile, index);
    __syncthreads();
    if (split < rows.n_used) finish_queries(shared, queries, args);
    for (; split < rows.n_used; split += gridDim.x) {
        if (split != blockIdx.x) {
            __syncthreads();
            tile = rows.first_tile(split);
            tile_rows.start(shared, args, rows.list, tile, tile_rows.index(rows.list, tile));
        }
        attend_split<kHeadDim>(shared, args, rows, split, tile_rows);
    }
    meet_blocks(counter, gridDim.x, blockIdx.x == 0, before);
    combine_splits(shared, args, rows.n_used);
}

AttentionRows decode_list(const DecodeAttentionParams& params) {
    AttentionParams shape{};
    shape.ring = params.ring;
    shape.compressed = params.compressed;
    shape.selected = params.selected;
    shape.selected_count = params.selected_count;
    shape.head_dim = params.head_dim;
    shape.window = params.window;
    shape.ratio = params.ratio;
    return attention_rows(shape);
}

}  // namespace

std::uint64_t decode_attention_partials_bytes(std::uint32_t n_heads, std::uint32_t head_dim,
                                              std::uint32_t rows_max) {
    const std::uint64_t heads = std::uint64_t{ceil_div(n_heads, kHeads)} * kHeads;
    return split_count(rows_max) * heads * (head_dim + 2) * sizeof(float);
}

void decode_attention(const DecodeAttentionParams& params, const Launch& launch) {
    const std::uint32_t groups = ceil_div(params.n_heads, kHeads);
    PLIMSOLL_KERNEL_CHECK(params.head_dim % kUnitElements == 0, "heads are whole units of 16");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim % kUnitElements == 0, "so is the rotated tail");
    PLIMSOLL_KERNEL_CHECK(params.ring.rope_dim % kUnitElements == 0, "and that of the rows");
    PLIMSOLL_KERNEL_CHECK(params.ring.row_capacity >= params.window,
                          "the ring must hold the window, the token included");
    PLIMSOLL_KERNEL_CHECK(groups <= 64, "a counter for each 16 heads");
    PLIMSOLL_KERNEL_CHECK(groups <= launch.n_multiprocessors, "all blocks must be resident");
    DecodeArgs args{};
    args.rows = decode_list(params);
    args.q = params.q;
    args.sinks = params.sinks;
    args.output = params.output;
    args.n_heads = params.n_heads;
    args.n_splits = split_count(params.rows_max);
    args.selected_max = params.rows_max - params.window;
    args.sums = params.partials;
    args.stats = reinterpret_cast<float2*>(params.partials + std::uint64_t{args.n_splits} * groups *
                                                                 kHeads * params.head_dim);
    args.angles = rope_angles(params.rope);
    args.state = launch.state;
    args.rms_epsilon = params.rms_epsilon;
    args.logit_scale = kLog2E / std::sqrt(static_cast<float>(params.head_dim));
    args.head_dim_inverse = 1.0f / static_cast<float>(params.head_dim);
    const std::uint32_t room = launch.n_multiprocessors / groups;
    Shape shape{dim3(args.n_splits < room ? args.n_splits : room, groups), dim3(kThreads)};
    shape.all_blocks_resident = true;
    if (params.head_dim <= 128) {
        shape.shared_bytes = sizeof(DecodeShared<128>);
        launch_kernel(decode_attention_kernel<128>, shape, launch, args);
    } else {
        shape.shared_bytes = sizeof(DecodeShared<512>);
        launch_kernel(decode_attention_kernel<512>, shape, launch, args);
    }
}

}  // namespace plimsoll::kernels::cuda
