#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/hc_meeting.cuh"

namespace plimsoll::kernels::cuda {
namespace {

using namespace hc;

// One token's hyper-connection between two sub-layers. 64 KB of streams and 786 KB of fn: nothing
// but latency once fn lies in registers, which it does before the wait. Blocks own columns, of all
// streams: 64 blocks of 64 columns, so that a lane's share of fn is three loads of 16 bytes, and
// the sums they meet for are 64 terms each.
//
// They meet once, in the partial sums themselves: each carries the launch's number as a tag, and
// whoever needs it asks until the tag is there. A counter would cost two trips to L2 more. The norm
// needs |u|^2 of the mix u = sum_s pre[s] X[s], which is the quadratic form sum pre[s] pre[t]
// G[s][t] with G = X . X^T, and the ten sums of G travel with those of fn. Only where streams
// cancel to less than 1/32 of what is summed would that lose bits that matter: then the blocks meet
// again for the sum itself.
//
// The Sinkhorn iteration, a microsecond of one thread, is left to the next step's launch: every
// block makes the coefficients from the logits while it waits for the sub-layer. One block more
// than there are columns for leaves those logits.

constexpr std::uint32_t kColumnsMin = 16;  // below, more blocks only have more to sum
constexpr std::uint32_t kHeld = 3;         // rows of fn that a warp holds in registers: 24 in all
constexpr std::uint32_t kGramBatch = 2;    // sums of G that a warp makes with those: 10 in all
constexpr float kCancelled = 1.0f / 32;

/// A block a multiprocessor, so that all are resident whatever else runs.
constexpr std::uint32_t block_count(std::uint32_t hidden, std::uint32_t n_multiprocessors) {
    std::uint32_t n_blocks = kBlocksMax;
    while (n_blocks > 1 && (hidden / n_blocks < kColumnsMin || n_blocks >= n_multiprocessors))
        n_blocks /= 2;
    return n_blocks;
}
/// A multiple of 8; the last blocks may have fewer.
constexpr std::uint32_t columns_of_block(std::uint32_t hidden, std::uint32_t n_blocks) {
    return (hidden + 8 * n_blocks - 1) / (8 * n_blocks) * 8;
}

/// Values summed over all columns: fn's rows, then G[s][t] for t <= s, row by row.
struct GramIndex {
    std::uint32_t s, t;
};
__device__ __forceinline__ GramIndex gram_index(std::uint32_t at) {
    std::uint32_t s = 0;
    while ((s + 1) * (s + 2) / 2 <= at) ++s;
    return {s, at - s * (s + 1) / 2};
}

/// The columns of a block.
struct Slice {
    std::uint32_t first;
    std::uint32_t count;
    std::uint32_t n_blocks;
};

/// One column of one stream behind the merge.
template <std::uint32_t kStreams>
struct MergeItem {
    float x[kStreams];
    float y;

    __device__ __forceinline__ void load(const HcStepParams& p, std::uint32_t column) {
        const std::uint32_t n = kStreams == 4 ? 4 : p.mix.n_streams;
        const bool inside = column < p.mix.hidden;
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j)
            x[j] = j < n && inside ? p.mix.streams[j * p.mix.hidden + column] : 0.0f;
        y = p.sublayer_out != nullptr && inside ? p.sublayer_out[column] : 0.0f;
    }
    __device__ __forceinline__ float merged(const HcStepParams& p, std::uint32_t stream,
                                            const float* coefficients) const {
        const std::uint32_t n = kStreams == 4 ? 4 : p.mix.n_streams;
        float after = 0.0f;
        if (p.sublayer_out == nullptr) {
#pragma unroll
            for (std::uint32_t j = 0; j < kStreams; ++j)
                if (j == stream) after = x[j];
            return after;
        }
        after = coefficients[stream] * y;
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j)
            if (j < n) after += coefficients[n + j * n + stream] * x[j];
        return after;
    }
};

/// Where the eight weights of a lane's chunk lie in a row of fn; past the end: none.
struct Chunk {
    std::uint32_t element;
    bool inside;
};
__device__ __forceinline__ Chunk chunk_of(std::uint32_t chunk, const Slice& slice, std::uint32_t n,
                                          std::uint32_t hidden) {
    const std::uint32_t stream = chunk / (slice.count / 8);
    const std::uint32_t column = slice.first + (chunk - stream * (slice.count / 8)) * 8;
    return {stream * hidden + column, stream < n && column < hidden};
}

template <WeightType kType>
__device__ __forceinline__ float dot_eight(const EightWeights<kType>& weights, const float* x) {
    float w[8];
    to_floats<kType>(weights, w);
    const float4 low = *reinterpret_cast<const float4*>(x);
    const float4 high = *reinterpret_cast<const float4*>(x + 4);
    return w[0] * low.x + w[1] * low.y + (w[2] * low.z + w[3] * low.w) +
           (w[4] * high.x + w[5] * high.y + (w[6] * high.z + w[7] * high.w));
}

/// A lane's part of the block's sum of one row of fn, of which it may hold the first chunk.
template <WeightType kType>
__device__ __forceinline__ float row_part(const HcMixParams& mix, std::uint32_t row,
                                          const EightWeights<kType>* held, const Chunk& own,
                                          const Slice& slice, const float* merged) {
    const std::uint32_t lane = threadIdx.x % kWarp, n_chunks = mix.n_streams * slice.count / 8;
    const std::uint64_t from = std::uint64_t{row} * mix.fn.n_in;
    float sum = 0.0f;
    if (own.inside)
        sum = dot_eight<kType>(
            held != nullptr ? *held : load_eight<kType>(mix.fn.data, from + own.element),
            merged + 8 * lane);
    for (std::uint32_t at = lane + kWarp; at < n_chunks; at += kWarp) {
        const Chunk chunk = chunk_of(at, slice, mix.n_streams, mix.hidden);
        if (chunk.inside)
            sum += dot_eight<kType>(load_eight<kType>(mix.fn.data, from + chunk.element),
                                    merged + 8 * at);
    }
    return sum;
}

__device__ __forceinline__ float gram_part(std::uint32_t at, const Slice& slice,
                                           const float* merged) {
    const GramIndex gram = gram_index(at);
    float sum = 0.0f;
    for (std::uint32_t i = threadIdx.x % kWarp; i < slice.count; i += kWarp)
        sum += merged[gram.s * slice.count + i] * merged[gram.t * slice.count + i];
    return sum;
}

/// The block's sums of all values to the others.
template <std::uint32_t kStreams, WeightType kType>
__device__ __forceinline__ void publish_sums(const HcMixParams& mix, const Meeting& meeting,
                                             std::uint32_t tag,
                                             const EightWeights<kType> (&held)[kHeld],
                                             const Chunk& own, const Slice& slice,
                                             const float* merged) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    constexpr std::uint32_t kBatch = kHeld + kGramBatch;
    for (std::uint32_t round = 0;
         round * kHeld * kWarps < fn_rows(n) || round * kGramBatch * kWarps < gram_values(n);
         ++round) {
        float parts[kBatch] = {};
        std::uint32_t values[kBatch];
#pragma unroll
        for (std::uint32_t i = 0; i < kHeld; ++i) {
            values[i] = warp + (round * kHeld + i) * kWarps;
            if (values[i] < fn_rows(n))
                parts[i] = row_part<kType>(mix, values[i], round == 0 ? &held[i] : nullptr, own,
                                           slice, merged);
            else
                values[i] = kValuesMax;
        }
#pragma unroll
        for (std::uint32_t i = kHeld; i < kBatch; ++i) {
            const std::uint32_t at = warp + (round * kGramBatch + i - kHeld) * kWarps;
            values[i] = at < gram_values(n) ? fn_rows(n) + at : kValuesMax;
            if (at < gram_values(n)) parts[i] = gram_part(at, slice, merged);
        }
        float own_part = 0.0f;
        std::uint32_t own_value = kValuesMax;
#pragma unroll
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            const float part = warp_sum(parts[i]);
            if (lane == i) {
                own_part = part;
                own_value = values[i];
            }
        }
        if (own_value < kValuesMax)
            store_tagged(meeting.partials(own_value) + blockIdx.x, {own_part, tag});
    }
}

/// 1 / rms of all streams together: the diagonal of G.
__device__ __forceinline__ float streams_scale(const HcMixParams& mix, const float* gram) {
    float squares = 0.0f;
    for (std::uint32_t s = 0; s < mix.n_streams; ++s) squares += gram[s * (s + 3) / 2];
    return inverse_rms(squares, mix.n_streams * mix.hidden, mix.rms_epsilon);
}

/// The mix's norm: |u|^2 by the quadratic form, or by a second meeting of all blocks.
template <std::uint32_t kStreams>
__device__ __forceinline__ float mixed_squares(const HcMixParams& mix, const Meeting& meeting,
                                               std::uint32_t tag, const Slice& slice,
                                               const float (&pre)[kStreams], const float* merged,
                                               float* values, float* sums) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    const float* gram = values + fn_rows(n);
    float total = 0.0f, absolute = 0.0f;
    std::uint32_t at = 0;
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
#pragma unroll
        for (std::uint32_t t = 0; t <= s; ++t) {
            if (s >= n) break;
            const float term = (s == t ? 1.0f : 2.0f) * pre[s] * pre[t] * gram[at++];
            total += term;
            absolute += fabsf(term);
        }
    if (total >= kCancelled * absolute) return total;
    float squares = 0.0f;
    for (std::uint32_t i = threadIdx.x; i < slice.count; i += kThreads) {
        float u = 0.0f;
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s)
            if (s < n) u += pre[s] * merged[s * slice.count + i];
        squares += u * u;
    }
    squares = block_total(squares, sums);
    const std::uint32_t value = meeting.squares_value();
    if (threadIdx.x == 0) store_tagged(meeting.partials(value) + blockIdx.x, {squares, tag});
    await_sums(
        meeting, tag, slice.n_blocks, 1, [&](std::uint32_t) { return value; }, values);
    return values[value];
}

/// The last block: the logits of the next merge's coefficients, and the coefficients where somebody
/// else wants them.
template <std::uint32_t kStreams>
__device__ __forceinline__ void leave_logits(const HcMixParams& mix, const Meeting& meeting,
                                             std::uint32_t n_blocks, float* values,
                                             float* coefficients) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams, count = coefficient_count(n);
    const float scale_post = mix.scale[1], scale_comb = mix.scale[2];
    const float base = threadIdx.x < count ? mix.base[n + threadIdx.x] : 0.0f;
    wait_for_previous_kernel();
    const std::uint32_t tag = load_tagged(meeting.last_launch()).tag + 1;
    await_sums(
        meeting, tag, n_blocks, count + n,
        [&](std::uint32_t i) {
            const std::uint32_t s = i - count;
            return i < count ? n + i : fn_rows(n) + s * (s + 3) / 2;
        },
        values);
    const float scale = streams_scale(mix, values + fn_rows(n));
    if (threadIdx.x < count) {
        const float z =
            values[n + threadIdx.x] * scale * (threadIdx.x < n ? scale_post : scale_comb) + base;
        store_tagged(meeting.logits() + threadIdx.x, {z, tag});
        coefficients[threadIdx.x] = z;
    }
    // All others have read the number, or their sums would not be here.
    if (threadIdx.x == 0) store_tagged(meeting.last_launch(), {0.0f, tag});
    if (mix.coefficients == nullptr) return;
    __syncthreads();
    if (threadIdx.x < kWarp)
        finish_coefficients<kStreams>({n, mix.sinkhorn_iterations, mix.hc_epsilon}, coefficients,
                                      mix.coefficients);
}

/// The first items of the merge are loaded before anything else that follows the wait.
template <std::uint32_t kStreams>
struct Merge {
    const HcStepParams& p;
    const Slice& slice;
    std::uint32_t item = threadIdx.x;
    MergeItem<kStreams> loaded = {};

    __device__ __forceinline__ std::uint32_t stream() const { return item / slice.count; }
    __device__ __forceinline__ std::uint32_t column() const {
        return slice.first + item - stream() * slice.count;
    }
    __device__ __forceinline__ void load() { loaded.load(p, column()); }
    __device__ __forceinline__ void finish(const float* coefficients, float* merged) {
        const std::uint32_t n_items = p.mix.n_streams * slice.count;
        while (item < n_items) {
            merged[item] = loaded.merged(p, stream(), coefficients);
            item += kThreads;
            if (item < n_items) load();
        }
    }
};

__device__ __forceinline__ void store_streams(const HcMixParams& mix, const Slice& slice,
                                              const float* merged) {
    for (std::uint32_t item = threadIdx.x; item < mix.n_streams * slice.count; item += kThreads) {
        const std::uint32_t stream = item / slice.count;
        const std::uint32_t column = slice.first + item - stream * slice.count;
        if (column < mix.hidden)
            const_cast<float*>(mix.streams)[stream * mix.hidden + column] = merged[item];
    }
}

/// What the last part needs of the weights, loaded before the wait.
template <std::uint32_t kStreams>
struct MixWeights {
    float base[kStreams];
    float scale_pre;
    float norm;  // of the thread's first column

    __device__ __forceinline__ MixWeights(const HcMixParams& mix, const Slice& slice)
        : scale_pre(mix.scale[0]), norm(0.0f) {
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s)
            base[s] = s < mix.n_streams ? mix.base[s] : 0.0f;
        const std::uint32_t column = slice.first + threadIdx.x;
        if (threadIdx.x < slice.count && column < mix.hidden) norm = mix.norm_weight[column];
    }
};

/// The block's columns of the normed mix, once all sums are there.
template <std::uint32_t kStreams>
__device__ __forceinline__ void mix_streams(const HcMixParams& mix, const Meeting& meeting,
                                            std::uint32_t tag, const Slice& slice,
                                            const MixWeights<kStreams>& weights,
                                            const float* merged, float* values, float* sums) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    const float scale = streams_scale(mix, values + fn_rows(n));
    float pre[kStreams];
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
        pre[s] = s < n ? sigmoid(values[s] * scale * weights.scale_pre + weights.base[s]) +
                             mix.hc_epsilon
                       : 0.0f;
    const float mixed_scale =
        inverse_rms(mixed_squares<kStreams>(mix, meeting, tag, slice, pre, merged, values, sums),
                    mix.hidden, mix.rms_epsilon);
    for (std::uint32_t i = threadIdx.x; i < slice.count && slice.first + i < mix.hidden;
         i += kThreads) {
        float u = 0.0f;
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s)
            if (s < n) u += pre[s] * merged[s * slice.count + i];
        mix.mixed[slice.first + i] =
            u * mixed_scale * (i == threadIdx.x ? weights.norm : mix.norm_weight[slice.first + i]);
    }
}

template <std::uint32_t kStreams, WeightType kType>
__global__ void __launch_bounds__(kThreads, 1)
    hc_step_kernel(const HcStepParams p, const std::uint32_t columns) {
    __shared__ float values[kValuesMax + 1];
    __shared__ float sums[kWarps];
    __shared__ float logits[kCoefficientsMax];
    __shared__ float coefficients[kCoefficientsMax];
    auto* merged = reinterpret_cast<float*>(dynamic_shared());  // [n_streams, columns] X'
    const HcMixParams& mix = p.mix;
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    const Slice slice{blockIdx.x * columns, columns, gridDim.x - 1};
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const Meeting meeting{p.partials, n};

    allow_next_kernel();
    if (blockIdx.x == slice.n_blocks) {
        leave_logits<kStreams>(mix, meeting, slice.n_blocks, values, coefficients);
        return;
    }
    EightWeights<kType> held[kHeld] = {};
    const Chunk own = chunk_of(lane, slice, n, mix.hidden);
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i)
        if (warp + i * kWarps < fn_rows(n) && own.inside)
            held[i] = load_eight<kType>(
                mix.fn.data, std::uint64_t{warp + i * kWarps} * mix.fn.n_in + own.element);
    const MixWeights<kStreams> weights(mix, slice);
    const bool makes_coefficients = warp == kWarps - 1 && p.sublayer_out != nullptr;
    MergeCoefficients<kStreams> made{
        {n, mix.sinkhorn_iterations, mix.hc_epsilon}, logits, coefficients};
    if (makes_coefficients) made.begin(meeting);
    wait_for_previous_kernel();

    Merge<kStreams> merge{p, slice};
    merge.load();
    const std::uint32_t last_launch = load_tagged(meeting.last_launch()).tag;
    if (makes_coefficients) made.end(meeting, last_launch);
    __syncthreads();
    merge.finish(coefficients, merged);
    __syncthreads();
    const std::uint32_t tag = last_launch + 1;
    publish_sums<kStreams, kType>(mix, meeting, tag, held, own, slice, merged);
    if (p.sublayer_out != nullptr) store_streams(mix, slice, merged);
    await_sums(
        meeting, tag, slice.n_blocks, n + gram_values(n),
        [&](std::uint32_t i) { return i < n ? i : fn_rows(n) + i - n; }, values);
    mix_streams<kStreams>(mix, meeting, tag, slice, weights, merged, values, sums);
}

template <std::uint32_t kStreams>
void launch_step(const HcStepParams& params, std::uint32_t columns, const Shape& shape,
                 const Launch& launch) {
    switch (params.mix.fn.type) {
        case WeightType::f16:
            launch_kernel(hc_step_kernel<kStreams, WeightType::f16>, shape, launch, params,
                          columns);
            return;
        case WeightType::bf16:
            launch_kernel(hc_step_kernel<kStreams, WeightType::bf16>, shape, launch, params,
                          columns);
            return;
        default:
            PLIMSOLL_KERNEL_CHECK(params.mix.fn.type == WeightType::f32, "fn is f32, f16 or bf16");
            launch_kernel(hc_step_kernel<kStreams, WeightType::f32>, shape, launch, params,
                          columns);
    }
}

}  // namespace

void hc_step(const HcStepParams& params, const Launch& launch) {
    const HcMixParams& mix = params.mix;
    PLIMSOLL_KERNEL_CHECK(mix.n_tokens == 1, "a step is one token");
    PLIMSOLL_KERNEL_CHECK(mix.n_streams > 0 && mix.n_streams <= kStreamsMax,
                          "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(mix.hidden % 8 == 0, "rows are read 8 values at a time");
    PLIMSOLL_KERNEL_CHECK(mix.fn.n_in == mix.n_streams * mix.hidden, "fn reads all streams");
    PLIMSOLL_KERNEL_CHECK(mix.fn.n_out == fn_rows(mix.n_streams), "fn gives pre, post and comb");
    const std::uint32_t n_blocks = block_count(mix.hidden, launch.n_multiprocessors);
    const std::uint32_t columns = columns_of_block(mix.hidden, n_blocks);
    const Shape shape{
        .grid = n_blocks + 1,
        .block = kThreads,
        .shared_bytes = mix.n_streams * columns * static_cast<std::uint32_t>(sizeof(float)),
        .all_blocks_resident = true};
    if (mix.n_streams == 4)
        launch_step<4>(params, columns, shape, launch);
    else
        launch_step<kStreamsMax>(params, columns, shape, launch);
}

std::uint64_t hc_step_partials_bytes(std::uint32_t n_streams, std::uint32_t hidden) {
    static_cast<void>(hidden);  // fewer blocks than kBlocksMax serve narrow rows
    const std::uint32_t values = fn_rows(n_streams) + gram_values(n_streams) + 1;
    return (std::uint64_t{values} * kBlocksMax + 1 + coefficient_count(n_streams)) *
           sizeof(std::uint64_t);
}

}  // namespace plimsoll::kernels::cuda
