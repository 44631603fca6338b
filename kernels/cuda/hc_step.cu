#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/hyper_connection.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// One token's hyper-connection between two sub-layers. 64 KB of streams and 786 KB of fn: nothing
// but latency once fn lies in registers, which it does before the wait. Blocks own columns, of all
// streams: 64 blocks of 64 columns, so that a lane's share of fn is three loads of 16 bytes, and
// the sums they meet for are 64 terms each.
//
// They meet once. The norm needs |u|^2 of the mix u = sum_s pre[s] X[s], which is the quadratic
// form sum pre[s] pre[t] G[s][t] with G = X . X^T, and the ten sums of G travel with those of fn.
// Only where streams cancel to less than 1/32 of what is summed would that lose bits that matter:
// then the blocks meet again for the sum itself.

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kBlocksMax = 64;
constexpr std::uint32_t kColumnsMin = 16;  // below, more blocks only have more to sum
constexpr std::uint32_t kHeld = 3;         // rows of fn that a warp holds in registers
constexpr std::uint32_t kBatch = 5;  // sums of a warp at a time: 4 streams have 34 for 8 warps
constexpr float kCancelled = 1.0f / 32;

__host__ __device__ constexpr std::uint32_t gram_values(std::uint32_t n_streams) {
    return n_streams * (n_streams + 1) / 2;
}
__host__ __device__ constexpr std::uint32_t fn_rows(std::uint32_t n_streams) {
    return n_streams * (n_streams + 2);
}
constexpr std::uint32_t kValuesMax = fn_rows(kStreamsMax) + gram_values(kStreamsMax);

/// A block a multiprocessor, so that all are resident whatever else runs.
constexpr std::uint32_t block_count(std::uint32_t hidden, std::uint32_t n_multiprocessors) {
    std::uint32_t n_blocks = kBlocksMax;
    while (n_blocks > 1 && (hidden / n_blocks < kColumnsMin || n_blocks > n_multiprocessors))
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

/// The merge for the block's columns: X' to memory and, with zeros past the end, to shared memory.
template <std::uint32_t kStreams>
__device__ __forceinline__ void merge_columns(const HcStepParams& p, std::uint32_t first,
                                              std::uint32_t columns, float* merged) {
    const std::uint32_t n = p.mix.n_streams, hidden = p.mix.hidden;
    auto* streams = const_cast<float*>(p.mix.streams);
    for (std::uint32_t i = threadIdx.x; i < columns; i += kThreads) {
        const bool inside = first + i < hidden;
        float x[kStreams], after[kStreams];
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j) {
            x[j] = j < n && inside ? streams[j * hidden + first + i] : 0.0f;
            after[j] = x[j];
        }
        if (p.sublayer_out != nullptr && inside) {
            const float y = p.sublayer_out[first + i];
            const float* post = p.merge_coefficients;
            const float* comb = post + n;
#pragma unroll
            for (std::uint32_t k = 0; k < kStreams; ++k) {
                if (k >= n) break;
                after[k] = post[k] * y;
#pragma unroll
                for (std::uint32_t j = 0; j < kStreams; ++j)
                    if (j < n) after[k] += comb[j * n + k] * x[j];
            }
#pragma unroll
            for (std::uint32_t k = 0; k < kStreams; ++k)
                if (k < n) streams[k * hidden + first + i] = after[k];
        }
#pragma unroll
        for (std::uint32_t k = 0; k < kStreams; ++k)
            if (k < n) merged[k * columns + i] = after[k];
    }
}

/// Where the eight weights of a lane's chunk lie in a row of fn; past the end: none.
struct Chunk {
    std::uint32_t element;
    bool inside;
};
__device__ __forceinline__ Chunk chunk_of(std::uint32_t chunk, std::uint32_t first,
                                          std::uint32_t columns, std::uint32_t n,
                                          std::uint32_t hidden) {
    const std::uint32_t stream = chunk / (columns / 8);
    const std::uint32_t column = first + chunk % (columns / 8) * 8;
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

/// A lane's part of the block's sum of one value. The first chunk of the warp's first rows is held.
template <WeightType kType>
__device__ __forceinline__ float lane_part(const HcStepParams& p, std::uint32_t value,
                                           const EightWeights<kType>& held, bool is_held,
                                           std::uint32_t first, std::uint32_t columns,
                                           const float* merged) {
    const std::uint32_t n = p.mix.n_streams, hidden = p.mix.hidden, lane = threadIdx.x % kWarp;
    float sum = 0.0f;
    if (value < fn_rows(n)) {
        for (std::uint32_t at = lane; at < n * columns / 8; at += kWarp) {
            const Chunk chunk = chunk_of(at, first, columns, n, hidden);
            if (!chunk.inside) continue;
            EightWeights<kType> weights = held;
            if (!is_held || at != lane)
                weights = load_eight<kType>(p.mix.fn.data,
                                            std::uint64_t{value} * p.mix.fn.n_in + chunk.element);
            sum += dot_eight<kType>(weights, merged + 8 * at);
        }
        return sum;
    }
    const GramIndex gram = gram_index(value - fn_rows(n));
    for (std::uint32_t i = lane; i < columns; i += kWarp)
        sum += merged[gram.s * columns + i] * merged[gram.t * columns + i];
    return sum;
}

/// The values the whole grid needs of the partial sums: pre's products and G; block 0 takes all.
/// Into `values` by their index.
__device__ __forceinline__ void sum_partials(const HcStepParams& p, float* values) {
    const std::uint32_t n = p.mix.n_streams, lane = threadIdx.x % kWarp;
    const std::uint32_t n_values = fn_rows(n) + gram_values(n);
    const std::uint32_t n_wanted = blockIdx.x == 0 ? n_values : n + gram_values(n);
    for (std::uint32_t at = threadIdx.x / kWarp; at < n_wanted; at += kBatch * kWarps) {
        float sums[kBatch];
        std::uint32_t indices[kBatch];
#pragma unroll
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            const std::uint32_t wanted = at + i * kWarps;
            indices[i] = blockIdx.x == 0 || wanted < n ? wanted : wanted - n + fn_rows(n);
            sums[i] = 0.0f;
            if (wanted < n_wanted)
                for (std::uint32_t block = lane; block < gridDim.x; block += kWarp)
                    sums[i] += __ldcg(p.partials + indices[i] * gridDim.x + block);
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            const float sum = warp_sum(sums[i]);
            if (lane == 0 && at + i * kWarps < n_wanted) values[indices[i]] = sum;
        }
    }
}

/// The mix's norm: |u|^2 by the quadratic form, or by a second meeting of all blocks.
template <std::uint32_t kStreams>
__device__ __forceinline__ float mixed_squares(const HcStepParams& p, const float* gram,
                                               const float (&pre)[kStreams], const float* merged,
                                               std::uint32_t columns, std::uint32_t* counter,
                                               float* sums) {
    const std::uint32_t n = p.mix.n_streams;
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
    for (std::uint32_t i = threadIdx.x; i < columns; i += kThreads) {
        float u = 0.0f;
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s)
            if (s < n) u += pre[s] * merged[s * columns + i];
        squares += u * u;
    }
    float* partials = p.partials + (fn_rows(n) + gram_values(n)) * gridDim.x;
    squares = block_total(squares, sums);
    if (threadIdx.x == 0) partials[blockIdx.x] = squares;
    meet_all_blocks(counter);
    float sum = 0.0f;
    for (std::uint32_t block = 0; block < gridDim.x; ++block) sum += __ldcg(partials + block);
    return sum;
}

/// What the next merge needs, by one warp of block 0 while the others go on.
template <std::uint32_t kStreams>
__device__ __forceinline__ void write_coefficients(const HcMixParams& mix, float* values,
                                                   float scale) {
    const std::uint32_t n = mix.n_streams, lane = threadIdx.x % kWarp;
    for (std::uint32_t i = n + lane; i < fn_rows(n); i += kWarp) {
        const bool is_post = i < 2 * n;
        const float z = values[i] * scale * mix.scale[is_post ? 1 : 2] + mix.base[i];
        if (is_post)
            mix.coefficients[i - n] = 2.0f * sigmoid(z);
        else
            values[i] = z;
    }
    __syncwarp();
    sinkhorn<kStreams>(values + 2 * n, n, mix.sinkhorn_iterations, mix.hc_epsilon,
                       mix.coefficients + n);
}

template <std::uint32_t kStreams, WeightType kType>
__global__ void __launch_bounds__(kThreads)
    hc_step_kernel(const HcStepParams p, const std::uint32_t columns, StepState* state) {
    __shared__ float values[kValuesMax];
    __shared__ float sums[kWarps];
    auto* merged = reinterpret_cast<float*>(dynamic_shared());  // [n_streams, columns] X'
    const std::uint32_t n = p.mix.n_streams, hidden = p.mix.hidden;
    const std::uint32_t first = blockIdx.x * columns;
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    std::uint32_t* counter = state->counters[static_cast<std::uint32_t>(Counter::hc_step)];

    allow_next_kernel();
    EightWeights<kType> held[kHeld] = {};
    const Chunk own = chunk_of(lane, first, columns, n, hidden);
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i)
        if (warp + i * kWarps < fn_rows(n) && own.inside)
            held[i] = load_eight<kType>(
                p.mix.fn.data, std::uint64_t{warp + i * kWarps} * p.mix.fn.n_in + own.element);
    wait_for_previous_kernel();

    merge_columns<kStreams>(p, first, columns, merged);
    __syncthreads();
    const std::uint32_t n_values = fn_rows(n) + gram_values(n);
    for (std::uint32_t at = warp; at < n_values; at += kBatch * kWarps) {
        float parts[kBatch];
#pragma unroll
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            const std::uint32_t value = at + i * kWarps;
            parts[i] = value < n_values
                           ? lane_part<kType>(p, value, held[i % kHeld], i < kHeld && at == warp,
                                              first, columns, merged)
                           : 0.0f;
        }
#pragma unroll
        for (std::uint32_t i = 0; i < kBatch; ++i) {
            const float part = warp_sum(parts[i]);
            if (lane == 0 && at + i * kWarps < n_values)
                p.partials[(at + i * kWarps) * gridDim.x + blockIdx.x] = part;
        }
    }
    // From here on the old coefficients have been read by all, and may be overwritten.
    meet_all_blocks(counter);
    sum_partials(p, values);
    __syncthreads();

    const float* gram = values + fn_rows(n);
    float squares = 0.0f;
    for (std::uint32_t s = 0; s < n; ++s) squares += gram[s * (s + 3) / 2];
    const float scale = inverse_rms(squares, n * hidden, p.mix.rms_epsilon);
    // The longest chain behind the meeting, so it starts first; the warp has few columns or none.
    if (blockIdx.x == 0 && warp == kWarps - 1) write_coefficients<kStreams>(p.mix, values, scale);
    float pre[kStreams];
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
        pre[s] =
            s < n ? sigmoid(values[s] * scale * p.mix.scale[0] + p.mix.base[s]) + p.mix.hc_epsilon
                  : 0.0f;
    const float mixed_scale =
        inverse_rms(mixed_squares<kStreams>(p, gram, pre, merged, columns, counter, sums), hidden,
                    p.mix.rms_epsilon);
    for (std::uint32_t i = threadIdx.x; i < columns && first + i < hidden; i += kThreads) {
        float u = 0.0f;
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s)
            if (s < n) u += pre[s] * merged[s * columns + i];
        p.mix.mixed[first + i] = u * mixed_scale * p.mix.norm_weight[first + i];
    }
}

template <std::uint32_t kStreams>
void launch_step(const HcStepParams& params, std::uint32_t columns, const Shape& shape,
                 const Launch& launch) {
    switch (params.mix.fn.type) {
        case WeightType::f16:
            launch_kernel(hc_step_kernel<kStreams, WeightType::f16>, shape, launch, params, columns,
                          launch.state);
            return;
        case WeightType::bf16:
            launch_kernel(hc_step_kernel<kStreams, WeightType::bf16>, shape, launch, params,
                          columns, launch.state);
            return;
        default:
            PLIMSOLL_KERNEL_CHECK(params.mix.fn.type == WeightType::f32, "fn is f32, f16 or bf16");
            launch_kernel(hc_step_kernel<kStreams, WeightType::f32>, shape, launch, params, columns,
                          launch.state);
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
        .grid = n_blocks,
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
    return std::uint64_t{fn_rows(n_streams) + gram_values(n_streams) + 1} * kBlocksMax *
           sizeof(float);
}

}  // namespace plimsoll::kernels::cuda
