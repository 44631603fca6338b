#include <cmath>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ops.hpp"

// Attention in float32. A block takes one token and 8 heads; rows are decoded to float32 in tiles
// of 32, which count from the token's first row, and every sum runs in a fixed order: a token's
// bits depend neither on T nor on the grid. Logits: two heads a warp, a lane a row, so that there
// are no sums across lanes. Values: four columns a thread at head_dim 512, all 8 heads of a row
// element at a time. 84 KB of shared memory fit two blocks a multiprocessor on sm_90, one anywhere.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kHeads = 8;
constexpr std::uint32_t kRows = 32;
constexpr std::uint32_t kColumns = kHeadDimMax / kThreads;  // a thread's, at most
/// Four more floats than a row has, so that 16-byte loads of eight lanes' rows share no bank.
constexpr std::uint32_t kRowStride = kHeadDimMax + 4;

struct PreciseArgs {
    AttentionRows rows;
    const float* q;      // [T, n_heads, head_dim], normed and rotated
    const float* sinks;  // [n_heads]
    float* output;       // [T, n_heads, head_dim]; may be q
    RopeAngles angles;   // no pairs: the output is not rotated
    const StepState* state;
    std::uint32_t n_heads;
    float scale;
};

struct PreciseShared {
    alignas(16) float rows[kRows * kRowStride];
    alignas(16) float q[kHeads * kHeadDimMax];
    alignas(16) float weights[kHeads][kRows];
    float rescale[kHeads];
    RowPlace places[kRows];
    float2 rotation[kRopeDimMax / 2];
};

/// Rows of a tile as float32, zeros up to a multiple of four dims and for rows that are not.
__device__ __forceinline__ void decode_rows_f32(PreciseShared& shared, const PreciseArgs& args) {
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t padded = (head_dim + 3) / 4 * 4;
    const std::uint32_t rope_dim =
        args.rows.ring.base != nullptr ? args.rows.ring.rope_dim : args.rows.compressed.rope_dim;
    for (std::uint32_t row = threadIdx.x / kWarp; row < kRows; row += kWarps) {
        const RowPlace place = shared.places[row];
#pragma unroll 4
        for (std::uint32_t i = threadIdx.x % kWarp; i < padded; i += kWarp)
            shared.rows[row * kRowStride + i] =
                i < head_dim ? row_element(place, head_dim - rope_dim, i) : 0.0f;
    }
}

__device__ __forceinline__ float4 multiply_add(float4 a, float4 b, float4 sum) {
    return make_float4(fmaf(a.x, b.x, sum.x), fmaf(a.y, b.y, sum.y), fmaf(a.z, b.z, sum.z),
                       fmaf(a.w, b.w, sum.w));
}

/// A head's running softmax, the same in all lanes.
struct HeadSoftmax {
    float largest;
    float sum;
};

/// Logits of the warp's two heads, a lane a row; weights into shared memory.
__device__ __forceinline__ void weigh_rows(PreciseShared& shared, const PreciseArgs& args,
                                           std::uint32_t n_valid, HeadSoftmax (&softmax)[2]) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t head = threadIdx.x / kWarp * 2;
    const auto* row = reinterpret_cast<const float4*>(shared.rows + lane * kRowStride);
    const auto* first = reinterpret_cast<const float4*>(shared.q + head * kHeadDimMax);
    const auto* second = first + kHeadDimMax / 4;
    float4 dot[2] = {};
#pragma unroll 4
    for (std::uint32_t i = 0; i < (args.rows.head_dim + 3) / 4; ++i) {
        dot[0] = multiply_add(row[i], first[i], dot[0]);
        dot[1] = multiply_add(row[i], second[i], dot[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float logit = ((dot[i].x + dot[i].y) + (dot[i].z + dot[i].w)) * args.scale;
        if (lane >= n_valid) logit = -INFINITY;
        const float largest = fmaxf(softmax[i].largest, warp_max(logit));
        const float rescale = expf(softmax[i].largest - largest);
        const float weight = expf(logit - largest);
        softmax[i] = {largest, softmax[i].sum * rescale + warp_sum(weight)};
        shared.weights[head + i][lane] = weight;
        if (lane == 0) shared.rescale[head + i] = rescale;
    }
}

/// sums = sums * rescale + weights . rows, rows ascending.
__device__ __forceinline__ void add_values(float (&sums)[kHeads][kColumns],
                                           const PreciseShared& shared, std::uint32_t n_columns) {
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h)
#pragma unroll
        for (std::uint32_t c = 0; c < kColumns; ++c) sums[h][c] *= shared.rescale[h];
    for (std::uint32_t r = 0; r < kRows; r += 4) {
        float4 weights[kHeads];
#pragma unroll
        for (std::uint32_t h = 0; h < kHeads; ++h)
            weights[h] = *reinterpret_cast<const float4*>(&shared.weights[h][r]);
#pragma unroll
        for (std::uint32_t c = 0; c < kColumns; ++c) {
            if (c >= n_columns) continue;
            const float* column = shared.rows + r * kRowStride + threadIdx.x + c * kThreads;
            const float v[4] = {column[0], column[kRowStride], column[2 * kRowStride],
                                column[3 * kRowStride]};
#pragma unroll
            for (std::uint32_t h = 0; h < kHeads; ++h) {
                sums[h][c] = fmaf(weights[h].x, v[0], sums[h][c]);
                sums[h][c] = fmaf(weights[h].y, v[1], sums[h][c]);
                sums[h][c] = fmaf(weights[h].z, v[2], sums[h][c]);
                sums[h][c] = fmaf(weights[h].w, v[3], sums[h][c]);
            }
        }
    }
}

/// Rotates the heads' outputs, which lie where the queries were, back and writes them.
__device__ __forceinline__ void store_output(PreciseShared& shared, const PreciseArgs& args,
                                             float* output, std::uint32_t n_heads) {
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t n_pairs = args.angles.n_pairs;
    for (std::uint32_t i = threadIdx.x; i < n_heads * n_pairs; i += kThreads) {
        float* pair =
            shared.q + i / n_pairs * kHeadDimMax + head_dim - 2 * n_pairs + 2 * (i % n_pairs);
        const float2 v = rotate_back(make_float2(pair[0], pair[1]), shared.rotation[i % n_pairs]);
        pair[0] = v.x;
        pair[1] = v.y;
    }
    __syncthreads();
    for (std::uint32_t head = 0; head < n_heads; ++head)
        for (std::uint32_t i = threadIdx.x; i < head_dim; i += kThreads)
            output[std::uint64_t{head} * head_dim + i] = shared.q[head * kHeadDimMax + i];
}

/// The block's queries; zeros for heads that are not and up to a multiple of four dims.
__device__ __forceinline__ void load_queries(PreciseShared& shared, const PreciseArgs& args,
                                             const float* q, std::uint32_t n_heads) {
    const std::uint32_t head_dim = args.rows.head_dim;
    for (std::uint32_t head = 0; head < kHeads; ++head)
        for (std::uint32_t i = threadIdx.x; i < (head_dim + 3) / 4 * 4; i += kThreads)
            shared.q[head * kHeadDimMax + i] =
                head < n_heads && i < head_dim ? q[std::uint64_t{head} * head_dim + i] : 0.0f;
}

__global__ void __launch_bounds__(kThreads) attention_precise_kernel(const PreciseArgs args) {
    auto& shared = *reinterpret_cast<PreciseShared*>(dynamic_shared());
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t token = blockIdx.x;
    const std::uint32_t head_first = blockIdx.y * kHeads;
    const std::uint32_t n_heads = min(kHeads, args.n_heads - head_first);
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint64_t at = (std::uint64_t{token} * args.n_heads + head_first) * head_dim;
    const std::uint64_t first_position = args.state->position;
    const TokenRows list = token_rows(args.rows, first_position, token, first_position);
    fill_rotation(shared.rotation, args.angles, first_position + token);
    load_queries(shared, args, args.q + at, n_heads);

    const std::uint32_t own_head = threadIdx.x / kWarp * 2;
    HeadSoftmax softmax[2];
    // The sink is the first logit, without a value.
    for (std::uint32_t i = 0; i < 2; ++i)
        softmax[i] = {own_head + i < n_heads ? args.sinks[head_first + own_head + i] : 0.0f, 1.0f};
    const std::uint32_t n_columns =
        threadIdx.x < head_dim ? (head_dim - threadIdx.x + kThreads - 1) / kThreads : 0;
    float sums[kHeads][kColumns] = {};
    for (std::uint32_t first = 0; first < list.n_rows; first += kRows) {
        __syncthreads();  // rows and weights of the tile before are read
        if (threadIdx.x < kRows)
            shared.places[threadIdx.x] = listed_row(args.rows, list, first + threadIdx.x,
                                                    compressed_index(list, first + threadIdx.x));
        __syncthreads();
        decode_rows_f32(shared, args);
        __syncthreads();
        weigh_rows(shared, args, list.n_rows - first, softmax);
        __syncthreads();
        add_values(sums, shared, n_columns);
    }
    __syncthreads();
    for (std::uint32_t i = 0; i < 2; ++i)
        if (threadIdx.x % kWarp == 0) shared.rescale[own_head + i] = softmax[i].sum;
    __syncthreads();
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h)
#pragma unroll
        for (std::uint32_t c = 0; c < kColumns; ++c)
            if (c < n_columns)
                shared.q[h * kHeadDimMax + threadIdx.x + c * kThreads] =
                    sums[h][c] / shared.rescale[h];
    __syncthreads();
    store_output(shared, args, args.output + at, n_heads);
}

}  // namespace

void attention_precise(const AttentionParams& params, const Launch& launch) {
    PreciseArgs args{};
    args.rows = attention_rows(params);
    args.q = params.q;
    args.sinks = params.sinks;
    args.output = params.output;
    args.angles = rope_angles(params.inverse_rope);
    args.state = launch.state;
    args.n_heads = params.n_heads;
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(params.head_dim)));
    launch_kernel(attention_precise_kernel,
                  Shape{dim3(params.n_tokens, (params.n_heads + kHeads - 1) / kHeads),
                        dim3(kThreads), sizeof(PreciseShared)},
                  launch, args);
}

}  // namespace plimsoll::kernels::cuda
