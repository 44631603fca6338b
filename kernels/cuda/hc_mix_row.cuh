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

/// What a block shares while it mixes. A thread's columns take the registers that its weights'
/// stream would: the stream's share lies here meanwhile.
struct MixShared {
    float sums[kSumsMax];
    float base[kStreamsMax];
    float scale_pre;
    float squares[kStreamWarps];
    float logits[kCoefficientsMax];
    BandShare share;
};

/// A lane's terms of one sum over all blocks, on their way.
struct Terms {
    static constexpr std::uint32_t kCount = kBlocksMax / kWarp;
    float terms[kCount];

    __device__ __forceinline__ Terms(const Mix& mix, std::uint32_t value) {
        const std::uint32_t lane = threadIdx.x % kWarp;
        const float* from = mix.params.sums + value * kBlocksMax + lane;
#pragma unroll
        for (std::uint32_t i = 0; i < kCount; ++i)
            terms[i] = lane + i * kWarp < mix.n_blocks ? from[i * kWarp] : 0.0f;
    }
    /// The sum, to all lanes.
    [[nodiscard]] __device__ __forceinline__ float total() const {
        float sum = terms[0];
#pragma unroll
        for (std::uint32_t i = 1; i < kCount; ++i) sum += terms[i];
        return warp_sum(sum);
    }
};

/// Which sums are wanted: names value(i) for i < count.
template <class Value>
struct Wanted {
    std::uint32_t count;
    Value value;
};
template <class Value>
Wanted(std::uint32_t, Value) -> Wanted<Value>;

/// Asks for the warp's first sum. A warp for which there is none asks for what another does.
template <class Value>
__device__ __forceinline__ Terms ask_for_sums(const Mix& mix, const Wanted<Value>& wanted) {
    return Terms(mix, wanted.value(threadIdx.x / kWarp % wanted.count));
}
/// Adds up the wanted sums over all blocks, into shared.sums by their names: each warp the one that
/// it has asked for, and then those that are left. The block meets behind it.
template <class Value>
__device__ __forceinline__ void add_sums(const Mix& mix, const Wanted<Value>& wanted,
                                         const Terms& first, MixShared& shared) {
    const std::uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (warp < wanted.count) {
        const float sum = first.total();
        if (lane == 0) shared.sums[wanted.value(warp)] = sum;
    }
#pragma unroll 1
    for (std::uint32_t i = warp + kStreamWarps; i < wanted.count; i += kStreamWarps) {
        const float sum = Terms(mix, wanted.value(i)).total();
        if (lane == 0) shared.sums[wanted.value(i)] = sum;
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

/// The columns of a thread in round `round`: the 256 of a warp follow one another.
__device__ __forceinline__ std::uint32_t column_of(std::uint32_t round) {
    return 8 * (round * kStreamThreads + threadIdx.x);
}
__device__ __forceinline__ std::uint32_t round_count(std::uint32_t hidden) {
    return (hidden + 8 * kStreamThreads - 1) / (8 * kStreamThreads);
}

struct Eight {
    float4 low, high;
};
/// [column, column + 8) of a row; zeros past its end.
__device__ __forceinline__ Eight load_columns(const float* row, std::uint32_t column,
                                              std::uint32_t n) {
    const auto* from = reinterpret_cast<const float4*>(row + column);
    return column < n ? Eight{from[0], from[1]} : Eight{};
}

/// Eight columns of the streams. Four streams are asked for at once, others as they are needed.
template <std::uint32_t kStreams>
struct StreamColumns {
    static constexpr bool kAtOnce = kStreams == 4;
    std::uint32_t column;
    Eight asked[kAtOnce ? kStreams : 1];

    __device__ __forceinline__ StreamColumns(const DecodeMix& mix, std::uint32_t first)
        : column(first) {
        if constexpr (kAtOnce) {
#pragma unroll
            for (std::uint32_t s = 0; s < kStreams; ++s) asked[s] = load(mix, s);
        }
    }
    [[nodiscard]] __device__ __forceinline__ Eight load(const DecodeMix& mix,
                                                        std::uint32_t s) const {
        return load_columns(mix.streams + s * mix.hidden, column, mix.hidden);
    }
    /// sum_s pre[s] X[s].
    [[nodiscard]] __device__ __forceinline__ Eight mixed(const DecodeMix& mix,
                                                         const float (&pre)[kStreams]) const {
        Eight u{};
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s) {
            if (!kAtOnce && s >= mix.n_streams) break;
            const Eight x = kAtOnce ? asked[kAtOnce ? s : 0] : load(mix, s);
            u.low = multiply_add(pre[s], x.low, u.low);
            u.high = multiply_add(pre[s], x.high, u.high);
        }
        return u;
    }
};

/// The factors of the streams from their sums.
template <std::uint32_t kStreams>
__device__ __forceinline__ void make_pre(const DecodeMix& mix, const MixShared& shared,
                                         float (&pre)[kStreams]) {
    const std::uint32_t n = kStreams == 4 ? 4 : mix.n_streams;
    // A lane a stream: exponentials and divisions are made once.
    const float scale = streams_scale(mix, n, shared) * shared.scale_pre;
    const std::uint32_t lane = threadIdx.x % kStreamsMax;
    const float own =
        lane < n ? sigmoid(shared.sums[lane] * scale + shared.base[lane]) + mix.hc_epsilon : 0.0f;
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
        pre[s] = __shfl_sync(kAllLanes, own, static_cast<int>(s));
}

/// |u|^2 by the quadratic form, or summed over all columns, of which `first` are the thread's
/// first.
template <std::uint32_t kStreams>
__device__ __forceinline__ float mixed_squares(const DecodeMix& mix, const float (&pre)[kStreams],
                                               const Eight& first, MixShared& shared) {
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
    float squares = squares_of(first.low) + squares_of(first.high);
#pragma unroll 1
    for (std::uint32_t round = 1; round < round_count(mix.hidden); ++round) {
        const Eight u = StreamColumns<kStreams>(mix, column_of(round)).mixed(mix, pre);
        squares += squares_of(u.low) + squares_of(u.high);
    }
    return block_total(squares, shared.squares);
}

/// Eight values of each lane of a row as the format reads it; all lanes together.
template <class Format>
__device__ __forceinline__ void put_columns(unsigned char* row, std::uint32_t n, std::uint32_t e,
                                            const Eight& v) {
    if constexpr (Format::kScaleElements == 0) {
        if (e >= n) return;
        const auto put = [&](std::uint32_t at, const float4& values) {
            const Place place = Format::place(at);
            reinterpret_cast<float4*>(row)[place.part * (n / Format::kPiece) + place.piece] =
                values;
        };
        put(e, v.low);
        put(e + 4, v.high);
    } else {
        put_eight<Format>(
            row, shared_row_layout<Format>(n), n, e,
            {v.low.x, v.low.y, v.low.z, v.low.w, v.high.x, v.high.y, v.high.z, v.high.w});
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
    const Wanted wanted{n + gram_values(n),
                        [&](std::uint32_t i) { return i < n ? i : fn_rows(n) + i - n; }};
    const Terms terms = ask_for_sums(args, wanted);
    const StreamColumns<kStreams> first(mix, column_of(0));
    Eight norm = load_columns(mix.norm_weight, column_of(0), mix.hidden);
    add_sums(args, wanted, terms, shared);
    float pre[kStreams];
    make_pre<kStreams>(mix, shared, pre);
    Eight u = first.mixed(mix, pre);
    const float factor =
        inverse_rms(mixed_squares<kStreams>(mix, pre, u, shared), mix.hidden, mix.rms_epsilon);
#pragma unroll 1
    for (std::uint32_t round = 0;;) {
        const std::uint32_t e = column_of(round);
        u.low = multiply_add(factor, times(u.low, norm.low), {});
        u.high = multiply_add(factor, times(u.high, norm.high), {});
        if (e < mix.hidden && e / 256 % n_writers == blockIdx.x) {
            auto* to = reinterpret_cast<float4*>(mix.mixed + e);
            to[0] = u.low;
            to[1] = u.high;
        }
        put_columns<Format>(row, mix.hidden, e, u);
        if (++round == round_count(mix.hidden)) break;
        u = StreamColumns<kStreams>(mix, column_of(round)).mixed(mix, pre);
        norm = load_columns(mix.norm_weight, column_of(round), mix.hidden);
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
    const Wanted wanted{count + n, [&](std::uint32_t at) {
                            return at < count ? n + at : fn_rows(n) + diagonal_value(at - count);
                        }};
    add_sums(args, wanted, ask_for_sums(args, wanted), shared);
    if (i < count)
        shared.logits[i] = shared.sums[n + i] * streams_scale(mix, n, shared) * scale + base;
    __syncthreads();
    if (i < n) mix.coefficients[i] = 2.0f * sigmoid(shared.logits[i]);
    if (i < kWarp)
        sinkhorn<kStreams>(shared.logits + n, n, mix.sinkhorn_iterations, mix.hc_epsilon,
                           mix.coefficients + n);
}

}  // namespace plimsoll::kernels::cuda::hc
