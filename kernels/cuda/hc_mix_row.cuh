#pragma once

// The first part of a decode step's launch whose products read the mix of the streams: every block
// adds up the sums that the launch before has left (hc_sums.cuh), mixes and norms the whole row for
// itself, and puts it into its shared memory as its weights want it.
//
// With 4 streams of 4096 columns a thread has 8 columns: 128 bytes of streams, which are asked for
// together with the sums, so that one latency brings all. 132 blocks read 9 MB of L2 that way.
//
// One block more than there are products for makes the coefficients of the next merge, whose
// Sinkhorn iteration takes a thread a microsecond, while the others multiply.

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/hc_sums.cuh"

namespace plimsoll::kernels::cuda::hc {

/// Where streams cancel to less than this part of what is summed, the quadratic form would lose
/// bits that matter: then the mix itself is squared and summed.
inline constexpr float kCancelled = 1.0f / 32;

/// DecodeMix as the blocks see it.
struct Mix {
    DecodeMix params;
    std::uint32_t n_blocks;  // that have left sums
};

inline Mix mix_of(const DecodeMix& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.n_streams > 0 && params.n_streams <= kStreamsMax,
                          "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(params.hidden % 8 == 0, "rows are read 8 values at a time");
    return {params, block_count(params.hidden, launch.n_multiprocessors)};
}

/// What a block shares while it mixes.
struct MixShared {
    float sums[kSumsMax];
    float base[kStreamsMax];
    float scale_pre;
    float squares[kStreamWarps];
    float logits[kCoefficientsMax];
};

/// Adds up sums `value_of(i)`, i < n_wanted, over all blocks, into shared.sums by their names. The
/// block meets behind it.
template <class ValueOf>
__device__ __forceinline__ void add_sums(const Mix& mix, std::uint32_t n_wanted,
                                         const ValueOf& value_of, MixShared& shared) {
    constexpr std::uint32_t kAtOnce = 4;
    const std::uint32_t lane = threadIdx.x % kWarp;
    for (std::uint32_t i = threadIdx.x / kWarp; i < n_wanted; i += kStreamWarps) {
        const std::uint32_t value = value_of(i);
        const float* from = mix.params.sums + value * kBlocksMax;
        float sum = 0.0f;
        for (std::uint32_t first = lane; first < mix.n_blocks; first += kAtOnce * kWarp) {
            float parts[kAtOnce];
#pragma unroll
            for (std::uint32_t k = 0; k < kAtOnce; ++k)
                parts[k] = first + k * kWarp < mix.n_blocks ? from[first + k * kWarp] : 0.0f;
            sum += (parts[0] + parts[1]) + (parts[2] + parts[3]);
        }
        sum = warp_sum(sum);
        if (lane == 0) shared.sums[value] = sum;
    }
    __syncthreads();
}

/// 1 / rms of all streams together.
__device__ __forceinline__ float streams_scale(const DecodeMix& mix, std::uint32_t n,
                                               const MixShared& shared) {
    float squares = 0.0f;
    for (std::uint32_t s = 0; s < n; ++s) squares += shared.sums[fn_rows(n) + diagonal_value(s)];
    return inverse_rms(squares, n * mix.hidden, mix.rms_epsilon);
}

/// Eight columns of all streams; kept in registers where there are four.
template <std::uint32_t kStreams>
struct EightColumns {
    static constexpr bool kHeld = kStreams == 4;
    std::uint32_t first;
    float4 held[kHeld ? kStreams : 1][2];

    __device__ __forceinline__ EightColumns(const DecodeMix& mix, std::uint32_t column)
        : first(column), held{} {
        if constexpr (kHeld) {
            if (column >= mix.hidden) return;
#pragma unroll
            for (std::uint32_t s = 0; s < kStreams; ++s) load(mix, s, held[s]);
        }
    }
    __device__ __forceinline__ void load(const DecodeMix& mix, std::uint32_t stream,
                                         float4 (&to)[2]) const {
        const auto* from =
            reinterpret_cast<const float4*>(mix.streams + stream * mix.hidden + first);
        to[0] = from[0];
        to[1] = from[1];
    }
    /// sum_s pre[s] X[s]; zeros past the end of the row.
    __device__ __forceinline__ void mix_into(const DecodeMix& mix, const float (&pre)[kStreams],
                                             float (&u)[8]) const {
        float4 low{}, high{};
        if (first < mix.hidden) {
#pragma unroll
            for (std::uint32_t s = 0; s < kStreams; ++s) {
                if (!kHeld && s >= mix.n_streams) break;
                float4 x[2];
                if constexpr (kHeld)
                    x[0] = held[s][0], x[1] = held[s][1];
                else
                    load(mix, s, x);
                low = multiply_add(pre[s], x[0], low);
                high = multiply_add(pre[s], x[1], high);
            }
        }
        u[0] = low.x, u[1] = low.y, u[2] = low.z, u[3] = low.w;
        u[4] = high.x, u[5] = high.y, u[6] = high.z, u[7] = high.w;
    }
};

/// The columns of a thread in round `round`: the 256 of a warp follow one another.
__device__ __forceinline__ std::uint32_t column_of(std::uint32_t round) {
    return 8 * (round * kStreamThreads + threadIdx.x);
}

/// |u|^2 by the quadratic form, or summed over all columns, of which the thread may hold the first.
template <std::uint32_t kStreams>
__device__ __forceinline__ float mixed_squares(const DecodeMix& mix, const float (&pre)[kStreams],
                                               const EightColumns<kStreams>& own,
                                               MixShared& shared) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    float total = 0.0f, absolute = 0.0f;
    const float* gram = shared.sums + fn_rows(n);
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
#pragma unroll
        for (std::uint32_t t = 0; t <= s; ++t) {
            if (s >= n) break;
            const float term = (s == t ? 1.0f : 2.0f) * pre[s] * pre[t] * *gram++;
            total += term;
            absolute += fabsf(term);
        }
    if (total >= kCancelled * absolute) return total;
    float squares = 0.0f, u[8];
    for (std::uint32_t round = 0; 8 * round * kStreamThreads < mix.hidden; ++round) {
        if (round == 0)
            own.mix_into(mix, pre, u);
        else
            EightColumns<kStreams>(mix, column_of(round)).mix_into(mix, pre, u);
#pragma unroll
        for (const float value : u) squares += value * value;
    }
    return block_total(squares, shared.squares);
}

/// Eight values of each lane of a row as the format reads it; all lanes together.
template <class Format>
__device__ __forceinline__ void put_columns(unsigned char* row, std::uint32_t n, std::uint32_t e,
                                            const float (&v)[8]) {
    if constexpr (Format::kScaleElements == 0) {
        if (e >= n) return;
        const auto put = [&](std::uint32_t at, float4 values) {
            const Place place = Format::place(at);
            reinterpret_cast<float4*>(row)[place.part * (n / Format::kPiece) + place.piece] =
                values;
        };
        put(e, {v[0], v[1], v[2], v[3]});
        put(e + 4, {v[4], v[5], v[6], v[7]});
    } else {
        put_eight<Format>(row, shared_row_layout<Format>(n), n, e, v);
    }
}

/// Before the wait: what the mix needs of the weights.
__device__ __forceinline__ void begin_mix(const DecodeMix& mix, MixShared& shared) {
    if (threadIdx.x < mix.n_streams) shared.base[threadIdx.x] = mix.base[threadIdx.x];
    if (threadIdx.x == 0) shared.scale_pre = mix.scale[0];
    for (std::uint32_t e = 16 * threadIdx.x; e < mix.hidden; e += 16 * kStreamThreads)
        prefetch_l2(mix.norm_weight + e);
}

/// The normed mix into `row` in shared memory; the block meets afterwards. Each of the launch's
/// n_writers blocks writes a part of it to mix.mixed.
template <class Format, std::uint32_t kStreams>
__device__ __forceinline__ void put_mixed_row(unsigned char* row, const Mix& args,
                                              std::uint32_t n_writers, MixShared& shared) {
    const DecodeMix& mix = args.params;
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    const EightColumns<kStreams> own(mix, column_of(0));
    add_sums(
        args, n + gram_values(n), [&](std::uint32_t i) { return i < n ? i : fn_rows(n) + i - n; },
        shared);
    const float scale = streams_scale(mix, n, shared) * shared.scale_pre;
    float pre[kStreams];
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
        pre[s] = s < n ? sigmoid(shared.sums[s] * scale + shared.base[s]) + mix.hc_epsilon : 0.0f;
    const float factor =
        inverse_rms(mixed_squares<kStreams>(mix, pre, own, shared), mix.hidden, mix.rms_epsilon);
    for (std::uint32_t round = 0; 8 * round * kStreamThreads < mix.hidden; ++round) {
        const std::uint32_t e = column_of(round);
        float v[8];
        if (round == 0)
            own.mix_into(mix, pre, v);
        else
            EightColumns<kStreams>(mix, e).mix_into(mix, pre, v);
        if (e < mix.hidden) {
            const auto* norm = reinterpret_cast<const float4*>(mix.norm_weight + e);
            const float4 low = norm[0], high = norm[1];
            v[0] *= factor * low.x, v[1] *= factor * low.y;
            v[2] *= factor * low.z, v[3] *= factor * low.w;
            v[4] *= factor * high.x, v[5] *= factor * high.y;
            v[6] *= factor * high.z, v[7] *= factor * high.w;
            if (e / 256 % n_writers == blockIdx.x) {
                auto* to = reinterpret_cast<float4*>(mix.mixed + e);
                to[0] = {v[0], v[1], v[2], v[3]};
                to[1] = {v[4], v[5], v[6], v[7]};
            }
        }
        put_columns<Format>(row, mix.hidden, e, v);
    }
}

/// A block of its own: the coefficients of the next merge.
template <std::uint32_t kStreams>
__device__ __forceinline__ void leave_coefficients(const Mix& args, MixShared& shared) {
    const DecodeMix& mix = args.params;
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams, count = coefficient_count(n);
    const std::uint32_t i = threadIdx.x;
    const float base = i < count ? mix.base[n + i] : 0.0f;
    const float scale = mix.scale[i < n ? 1 : 2];
    wait_for_previous_kernel();
    add_sums(
        args, count + n,
        [&](std::uint32_t at) {
            return at < count ? n + at : fn_rows(n) + diagonal_value(at - count);
        },
        shared);
    if (i < count)
        shared.logits[i] = shared.sums[n + i] * streams_scale(mix, n, shared) * scale + base;
    __syncthreads();
    if (i < n) mix.coefficients[i] = 2.0f * sigmoid(shared.logits[i]);
    if (i < kWarp)
        sinkhorn<kStreams>(shared.logits + n, n, mix.sinkhorn_iterations, mix.hc_epsilon,
                           mix.coefficients + n);
}

}  // namespace plimsoll::kernels::cuda::hc
