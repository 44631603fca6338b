#pragma once

#include "kernels/cuda/attention_fast_config.cuh"

// Attention of a chunk on tensor cores: a block takes one token and up to 64 of its heads, which
// share every row, so that a row is decoded once for all of them.
//
// At 64 heads x 512 and 640 rows a token is 84 MFLOP over 373 KB of packed rows, so tensor cores
// and shared memory bound it, not device memory. Per tile of 64 rows the eight warps load, beside
// 2,048 products of 16x8x16 (about 3,300 cycles at the rate mma.sync reaches):
//   logits   2 head groups x 2 row groups x 2 halves of head_dim: 32 KB a warp, 256 KB in all.
//            A 4 x 2 split without halves would take 384 KB. Halves are added through `inbox`.
//   values   2 head groups x 4 column groups: 16 KB a warp, 128 KB in all, and 128 sums a thread.
// At 128 bytes a cycle that is 3,000 cycles. The next tile is decoded between the products of the
// values, into a second buffer where shared memory has room for it.

namespace plimsoll::kernels::cuda {

/// This warp's share of the logits: its head group's heads against its row group, over its half of
/// head_dim.
template <class Config>
__device__ __forceinline__ void half_logits(
    float (&logits)[Config::kHeadTiles][Config::kRowTiles][4],
    const typename Config::Shared& shared, const __half* tile, const FastWarp& warp) {
    constexpr std::uint32_t kHalf = Config::kHeadDim / 2;
#pragma unroll
    for (int h = 0; h < Config::kHeadTiles; ++h)
#pragma unroll
        for (int r = 0; r < Config::kRowTiles; ++r)
            logits[h][r][0] = logits[h][r][1] = logits[h][r][2] = logits[h][r][3] = 0.0f;
#pragma unroll 4
    for (std::uint32_t k = warp.half() * kHalf; k < (warp.half() + 1) * kHalf; k += 16) {
        std::uint32_t a[Config::kHeadTiles][4];
#pragma unroll
        for (int h = 0; h < Config::kHeadTiles; ++h)
            load_a(a[h], shared.q, Config::kRowHalves,
                   warp.head_group * (Config::kHeads / 2) + 16 * h, k);
#pragma unroll
        for (int r = 0; r < Config::kRowTiles; r += 2) {
            std::uint32_t b[4];
            load_b_keys(b, tile, Config::kRowHalves, warp.row_group() * (Config::kRows / 2) + 8 * r,
                        k);
#pragma unroll
            for (int h = 0; h < Config::kHeadTiles; ++h)
                mma_pair(logits[h][r], logits[h][r + 1], a[h], b);
        }
    }
}

/// Where member `from` of a head group leaves what is meant for member `to`.
__device__ __forceinline__ std::uint32_t inbox_place(std::uint32_t from, std::uint32_t to) {
    return (from - to - 1) % 4;
}

/// Sends each slice's logits to its owner; the own slice's stay in `kept`.
template <class Config>
__device__ __forceinline__ void send_logits(
    typename Config::Shared& shared, const FastWarp& warp,
    const float (&logits)[Config::kHeadTiles][Config::kRowTiles][4],
    float2 (&kept)[Config::kRowTiles]) {
    const std::uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int slice = 0; slice < Config::kSlices; ++slice) {
        const bool own = static_cast<std::uint32_t>(slice) == warp.member;
        auto& inbox = shared.inbox[warp.head_group * Config::kSlices + slice];
#pragma unroll
        for (int r = 0; r < Config::kRowTiles; ++r) {
            const float2 v = make_float2(logits[slice / 2][r][slice % 2 * 2],
                                         logits[slice / 2][r][slice % 2 * 2 + 1]);
            if (own)
                kept[r] = v;
            else
                inbox[inbox_place(warp.member, slice)][r][lane] = v;
        }
    }
}

/// A slice's running softmax: a head a group of four lanes, `sum` each lane's share.
struct SliceSoftmax {
    float largest;
    float sum;
};

/// Completes the own slice's logits, advances its softmax, and leaves its weights and the factor
/// for what was summed before in shared memory. `n_valid` rows of the tile count.
template <class Config>
__device__ __forceinline__ void weigh_rows(typename Config::Shared& shared, const FastWarp& warp,
                                           const float2 (&kept)[Config::kRowTiles],
                                           std::uint32_t n_valid, SliceSoftmax& softmax) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t owner = warp.head_group * Config::kSlices + warp.member;
    const auto& inbox = shared.inbox[owner];
    const std::uint32_t other = warp.member ^ 2;  // of the other row group
    float2 logit[2][Config::kRowTiles];
    float largest = softmax.largest;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
        const std::uint32_t row_group = warp.row_group() ^ group;
#pragma unroll
        for (int r = 0; r < Config::kRowTiles; ++r) {
            const float2 a = group == 0 ? kept[r] : inbox[inbox_place(other, warp.member)][r][lane];
            const float2 b =
                inbox[inbox_place((group == 0 ? warp.member : other) ^ 1, warp.member)][r][lane];
            const std::uint32_t row = row_group * (Config::kRows / 2) + 8 * r + warp.column;
            logit[group][r].x = row < n_valid ? a.x + b.x : -INFINITY;
            logit[group][r].y = row + 1 < n_valid ? a.y + b.y : -INFINITY;
            largest = fmaxf(largest, fmaxf(logit[group][r].x, logit[group][r].y));
        }
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float rescale = exp2f(softmax.largest - largest);
    softmax.largest = largest;
    softmax.sum *= rescale;
    if (warp.column == 0)
        shared.rescale[warp.head_group * (Config::kHeads / 2) + 8 * warp.member + warp.row] =
            rescale;
    __syncwarp();  // the inbox is read: weights may lie over it
    auto* weights = reinterpret_cast<__half*>(shared.inbox[owner]);
#pragma unroll
    for (int group = 0; group < 2; ++group)
#pragma unroll
        for (int r = 0; r < Config::kRowTiles; ++r) {
            const float2 weight =
                make_float2(exp2f(logit[group][r].x - largest), exp2f(logit[group][r].y - largest));
            softmax.sum += weight.x + weight.y;
            const std::uint32_t row =
                (warp.row_group() ^ group) * (Config::kRows / 2) + 8 * r + warp.column;
            *reinterpret_cast<std::uint32_t*>(weights + warp.row * Config::kWeightHalves + row) =
                half_bits(weight.x, weight.y);
        }
}

/// The own slice's factors for the output, one over the sum of weights, where rescale had its own.
template <class Config>
__device__ __forceinline__ void finish_softmax(typename Config::Shared& shared,
                                               const FastWarp& warp, const SliceSoftmax& softmax) {
    float sum = softmax.sum + __shfl_xor_sync(kAllLanes, softmax.sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (warp.column == 0)
        shared.rescale[warp.head_group * (Config::kHeads / 2) + 8 * warp.member + warp.row] =
            1.0f / sum;
}

/// The weights of 16 heads as an A fragment: two slices.
template <class Config>
__device__ __forceinline__ void load_weights(std::uint32_t (&a)[4],
                                             const typename Config::Shared& shared,
                                             const FastWarp& warp, int head_tile,
                                             std::uint32_t row) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t slice = warp.head_group * Config::kSlices + 2 * head_tile + lane / 8 % 2;
    const auto* weights = reinterpret_cast<const __half*>(shared.inbox[slice]);
    load_matrix(a, weights + lane % 8 * Config::kWeightHalves + row + lane / 16 * 8);
}

/// Multiplies sums by a factor per head. Once the largest logit is found factors are 1.
template <class Config>
__device__ __forceinline__ void rescale_sums(
    float (&sums)[Config::kHeadTiles][Config::kColumnTiles][4],
    const typename Config::Shared& shared, const FastWarp& warp) {
    float factor[Config::kHeadTiles][2];
    bool all_one = true;
#pragma unroll
    for (int h = 0; h < Config::kHeadTiles; ++h)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            factor[h][i] =
                shared.rescale[warp.head_group * (Config::kHeads / 2) + 16 * h + 8 * i + warp.row];
            all_one = all_one && factor[h][i] == 1.0f;
        }
    if (__all_sync(kAllLanes, all_one)) return;
#pragma unroll
    for (int h = 0; h < Config::kHeadTiles; ++h)
#pragma unroll
        for (int c = 0; c < Config::kColumnTiles; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[h][c][i] *= factor[h][i / 2];
}

/// The part of the next tile that is decoded between two halves of a step's products: two units at
/// head_dim 512. Units of packed rows are small enough to be loaded together, ahead of both halves,
/// and wait for no load; two of float32 rows would not fit the registers and go one by one.
template <class Config>
struct StepDecoder {
    using Decoder = typename Config::Decoder;
    static constexpr std::uint32_t kSteps = Config::kRows / 16;
    static constexpr std::uint32_t kUnits = (Decoder::kSteps + kSteps - 1) / kSteps;
    static_assert(kUnits <= 2 && (kUnits == 1 || Decoder::kSteps % 2 == 0));

    __half* next;  // null: nothing to decode
    const RowPlace* places;
    UnitShape shape;
    RawUnit raw;
    bool together;

    __device__ __forceinline__ bool decodes(std::uint32_t step) const {
        return next != nullptr && step * kUnits < Decoder::kSteps;
    }
    __device__ __forceinline__ void before(std::uint32_t step) {
        if (!decodes(step)) return;
        Decoder::template load<0>(raw, places, shape, step * kUnits);
        if constexpr (kUnits == 2) {
            together =
                Decoder::is_packed(places, step * 2) && Decoder::is_packed(places, step * 2 + 1);
            if (together) Decoder::template load<2>(raw, places, shape, step * 2 + 1);
        }
    }
    __device__ __forceinline__ void between(std::uint32_t step) {
        if constexpr (kUnits == 2) {
            if (!decodes(step) || together) return;
            Decoder::template store<0>(next, raw, places, shape, step * 2);
            Decoder::template load<2>(raw, places, shape, step * 2 + 1);
        }
    }
    __device__ __forceinline__ void behind(std::uint32_t step) {
        if (!decodes(step)) return;
        if constexpr (kUnits == 2) {
            if (together) Decoder::template store<0>(next, raw, places, shape, step * 2);
            Decoder::template store<2>(next, raw, places, shape, step * 2 + 1);
        } else {
            Decoder::template store<0>(next, raw, places, shape, step);
        }
    }
};

/// Adds the tile's weighted rows, and meanwhile decodes the next tile. `decoder` has its first
/// units on their way.
template <class Config>
__device__ __forceinline__ void add_values(
    float (&sums)[Config::kHeadTiles][Config::kColumnTiles][4],
    const typename Config::Shared& shared, const __half* tile, StepDecoder<Config>& decoder,
    const FastWarp& warp) {
    constexpr int kSteps = Config::kRows / 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        if (step != 0) decoder.before(step);
        std::uint32_t a[Config::kHeadTiles][4];
#pragma unroll
        for (int h = 0; h < Config::kHeadTiles; ++h)
            load_weights<Config>(a[h], shared, warp, h, 16 * step);
#pragma unroll
        for (int c = 0; c < Config::kColumnTiles; c += 2) {
            if (c == Config::kColumnTiles / 2) decoder.between(step);
            std::uint32_t b[4];
            load_b_values(b, tile, Config::kRowHalves, 16 * step,
                          warp.member * Config::kColumns + 8 * c);
#pragma unroll
            for (int h = 0; h < Config::kHeadTiles; ++h)
                mma_pair(sums[h][c], sums[h][c + 1], a[h], b);
        }
        decoder.behind(step);
    }
}

/// Sums over weights, rotated back, as float16: through shared memory, so that stores are whole
/// lines.
template <class Config>
__device__ __forceinline__ void store_output(
    const float (&sums)[Config::kHeadTiles][Config::kColumnTiles][4],
    typename Config::Shared& shared, const FastArgs& args, const FastWarp& warp,
    std::uint32_t token, std::uint32_t head_first) {
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t rope_first = head_dim - 2 * args.angles.n_pairs;
#pragma unroll
    for (int h = 0; h < Config::kHeadTiles; ++h)
#pragma unroll
        for (int c = 0; c < Config::kColumnTiles; ++c)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const std::uint32_t head =
                    warp.head_group * (Config::kHeads / 2) + 16 * h + 8 * i + warp.row;
                const std::uint32_t column = warp.member * Config::kColumns + 8 * c + warp.column;
                const float factor = shared.rescale[head];
                float2 v = make_float2(sums[h][c][2 * i] * factor, sums[h][c][2 * i + 1] * factor);
                if (column >= rope_first && column < head_dim)
                    v = rotate_back(v, shared.rotation[(column - rope_first) / 2]);
                *reinterpret_cast<std::uint32_t*>(shared.q + head * Config::kRowHalves + column) =
                    half_bits(v.x, v.y);
            }
    __syncthreads();
    const std::uint32_t parts = head_dim / 8;
    for (std::uint32_t i = threadIdx.x; i < Config::kHeads * parts; i += kFastThreads) {
        const std::uint32_t head = i / parts;
        if (head_first + head >= args.n_heads) break;
        const std::uint64_t at =
            (std::uint64_t{token} * args.n_heads + head_first + head) * head_dim + i % parts * 8;
        *reinterpret_cast<uint4*>(args.output + at) =
            *reinterpret_cast<const uint4*>(shared.q + head * Config::kRowHalves + i % parts * 8);
    }
}

/// The block's place for row i of the list in its tile's table; threads below kRows.
template <class Config>
__device__ __forceinline__ void place_rows(typename Config::Shared& shared, const FastArgs& args,
                                           const TokenRows& list, std::uint32_t first,
                                           std::uint32_t compressed) {
    if (threadIdx.x < Config::kRows)
        shared.places[threadIdx.x] = listed_row(args.rows, list, first + threadIdx.x, compressed);
}

/// A tile at once, where no products can lie between: loads of several units together.
template <class Config>
__device__ __forceinline__ void decode_tile(typename Config::Shared& shared, __half* tile,
                                            const UnitShape& unit_shape) {
    using Decoder = typename Config::Decoder;
    constexpr std::uint32_t kMost = Config::kBuffers == 2 ? 4 : 2;  // registers hold sums then
    constexpr std::uint32_t kTogether = Decoder::kSteps < kMost ? Decoder::kSteps : kMost;
    static_assert(Decoder::kSteps % kTogether == 0);
#pragma unroll
    for (std::uint32_t step = 0; step < Decoder::kSteps; step += kTogether) {
        RawUnit raw[kTogether];
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i)
            Decoder::load(raw[i], shared.places, unit_shape, step + i);
#pragma unroll
        for (std::uint32_t i = 0; i < kTogether; ++i)
            Decoder::store(tile, raw[i], shared.places, unit_shape, step + i);
    }
}

template <class Config>
__global__ void __launch_bounds__(kFastThreads, 1) attention_fast_kernel(const FastArgs args) {
    auto& shared = *reinterpret_cast<typename Config::Shared*>(dynamic_shared());
    wait_for_previous_kernel();
    allow_next_kernel();
    const FastWarp warp = FastWarp::own();
    // The last tokens see most rows: they go first, so that the grid ends evenly.
    const std::uint32_t token = args.n_tokens - 1 - blockIdx.x;
    const std::uint32_t head_first = blockIdx.y * Config::kHeads;
    RawQueries<Config> queries;
    fetch_queries(queries, args, token, head_first);
    const std::uint64_t first_position = args.state->position;
    const TokenRows list = token_rows(args.rows, first_position, token, first_position);
    const UnitShape shape = unit_shape(args.rows);

    fill_rotation(shared.rotation, args.angles, first_position + token);
    place_rows<Config>(shared, args, list, 0, compressed_index(list, threadIdx.x));
    // Selected indices are fetched a tile ahead of their use.
    std::uint32_t next_index = compressed_index(list, Config::kRows + threadIdx.x);
    __syncthreads();
    decode_tile<Config>(shared, shared.tile[0], shape);
    finish_queries<Config>(shared, queries, args);

    const std::uint32_t head =
        head_first + warp.head_group * (Config::kHeads / 2) + 8 * warp.member + warp.row;
    const bool owns_slice = warp.member < Config::kSlices;
    // The sink is the first logit, without a value.
    SliceSoftmax softmax{0.0f, warp.column == 0 ? 1.0f : 0.0f};
    if (owns_slice && head < args.n_heads) softmax.largest = args.sinks[head] * kLog2E;
    float sums[Config::kHeadTiles][Config::kColumnTiles][4] = {};

    std::uint32_t buffer = 0;
    for (std::uint32_t first = 0; first < list.n_rows; first += Config::kRows) {
        const std::uint32_t next_first = first + Config::kRows;
        const bool has_next = next_first < list.n_rows;
        __syncthreads();  // the tile is decoded; weights, inbox and places are free
        if (has_next) {
            place_rows<Config>(shared, args, list, next_first, next_index);
            next_index = compressed_index(list, next_first + Config::kRows + threadIdx.x);
        }
        float2 kept[Config::kRowTiles];
        {
            float logits[Config::kHeadTiles][Config::kRowTiles][4];
            half_logits<Config>(logits, shared, shared.tile[buffer], warp);
            send_logits<Config>(shared, warp, logits, kept);
        }
        StepDecoder<Config> decoder{nullptr, shared.places, shape, {}, false};
        if (Config::kBuffers == 2 && has_next) decoder.next = shared.tile[buffer ^ 1];
        __syncthreads();
        decoder.before(0);
        if (owns_slice) weigh_rows<Config>(shared, warp, kept, list.n_rows - first, softmax);
        __syncthreads();
        rescale_sums<Config>(sums, shared, warp);
        add_values<Config>(sums, shared, shared.tile[buffer], decoder, warp);
        if constexpr (Config::kBuffers == 2) {
            buffer ^= 1;
        } else {
            __syncthreads();
            if (has_next) decode_tile<Config>(shared, shared.tile[0], shape);
        }
    }
    __syncthreads();  // queries and factors are read
    if (owns_slice) finish_softmax<Config>(shared, warp, softmax);
    __syncthreads();
    store_output<Config>(sums, shared, args, warp, token, head_first);
}

}  // namespace plimsoll::kernels::cuda
