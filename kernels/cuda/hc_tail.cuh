#pragma once

// The last part of a decode step's launch whose rows are a sub-layer's output: a block merges its
// rows into the same columns of the streams, and leaves the sums over these columns that the next
// mix needs (hc_sums.cuh).
//
// Of 4 streams of 4096 columns a block has 32 columns: 6 KB of fn in float16, which are on their
// way before the wait, and 512 bytes of streams, which are asked for right behind it. So nothing
// but arithmetic is left when the rows' sums are there.

#include <type_traits>

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/hc_sums.cuh"

namespace plimsoll::kernels::cuda::hc {

/// DecodeMerge as the blocks see it.
struct Merge {
    const float* coefficients;
    float* streams;  // null: the launch does not merge
    const unsigned char* fn;
    float* sums;
    WeightType fn_type;
    std::uint32_t n_streams;
    std::uint32_t hidden;
};

inline Merge merge_of(const DecodeMerge& params) {
    const WeightMatrix& fn = params.fn;
    Merge merge{};
    if (params.streams == nullptr) return merge;
    PLIMSOLL_KERNEL_CHECK(params.n_streams > 0 && params.n_streams <= kStreamsMax,
                          "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(fn.n_out == fn_rows(params.n_streams), "fn gives pre, post and comb");
    PLIMSOLL_KERNEL_CHECK(fn.n_in % (8 * params.n_streams) == 0,
                          "fn reads all streams, whose rows are multiples of 8 values");
    PLIMSOLL_KERNEL_CHECK(info_of(fn.type).block_elements == 1, "fn is f32, f16 or bf16");
    merge.coefficients = params.coefficients;
    merge.streams = params.streams;
    merge.fn = static_cast<const unsigned char*>(fn.data);
    merge.sums = params.sums;
    merge.fn_type = fn.type;
    merge.n_streams = params.n_streams;
    merge.hidden = fn.n_in / params.n_streams;
    return merge;
}

/// Shared memory of a block's tail, from byte `first` on, which is a multiple of 16.
struct TailMemory {
    std::uint32_t fn_bytes;            // [fn_rows][n_streams][columns]
    std::uint32_t streams_bytes;       // [n_streams][columns] f32
    std::uint32_t coefficients_bytes;  // [coefficient_count] f32
    std::uint32_t size_bytes;

    __host__ __device__ TailMemory(const Merge& merge, std::uint32_t columns, std::uint32_t first)
        : fn_bytes((first + 15) / 16 * 16),
          streams_bytes(fn_bytes + (fn_rows(merge.n_streams) * merge.n_streams * columns *
                                        (merge.fn_type == WeightType::f32 ? 4 : 2) +
                                    15) /
                                       16 * 16),
          coefficients_bytes(streams_bytes + merge.n_streams * columns * 4),
          size_bytes(coefficients_bytes + coefficient_count(merge.n_streams) * 4) {}
};

/// Calls visit(std::integral_constant<WeightType, type>{}) for fn's types.
template <class Visit>
__device__ __forceinline__ void on_fn_type(WeightType type, const Visit& visit) {
    switch (type) {
        case WeightType::f32: return visit(std::integral_constant<WeightType, WeightType::f32>{});
        case WeightType::f16: return visit(std::integral_constant<WeightType, WeightType::f16>{});
        default: return visit(std::integral_constant<WeightType, WeightType::bf16>{});
    }
}

/// Four weights in shared memory.
template <WeightType kType>
__device__ __forceinline__ float4 four_weights(const unsigned char* weights, std::uint32_t at) {
    if constexpr (kType == WeightType::f32) {
        return reinterpret_cast<const float4*>(weights)[at];
    } else {
        const uint2 pairs = reinterpret_cast<const uint2*>(weights)[at];
        using Pair = std::conditional_t<kType == WeightType::f16, F16Pair, Bf16Pair>;
        const float2 low = Pair::values(pairs.x), high = Pair::values(pairs.y);
        return {low.x, low.y, high.x, high.y};
    }
}

/// The tail of one block of kStreamThreads threads, which owns some columns.
class Tail {
public:
    __device__ Tail(const Merge& merge, const RowRange& columns, std::uint32_t first_bytes)
        : merge_(merge),
          first_(columns.first),
          count_(columns.last - columns.first),
          memory_(merge, columns.last - columns.first, first_bytes) {}

    /// Before the wait and before any other copy of the thread, all of which are then behind it.
    __device__ void ask_for_fn() const {
        on_fn_type(merge_.fn_type, [&](auto type) { copy_fn<decltype(type)::value>(); });
        commit_copies();
    }
    /// Behind the wait. The copies belong to the group that the thread commits next.
    __device__ void ask_for_streams() const {
        const std::uint32_t quads = count_ / kColumnsAtOnce;
        for (std::uint32_t at = threadIdx.x; at < merge_.n_streams * quads; at += kStreamThreads) {
            const std::uint32_t stream = at / quads;
            copy_async16(streams() + kColumnsAtOnce * at,
                         merge_.streams + stream * merge_.hidden + first_ +
                             kColumnsAtOnce * (at - stream * quads));
        }
        if (merge_.coefficients == nullptr) return;
        for (std::uint32_t i = threadIdx.x; i < coefficient_count(merge_.n_streams);
             i += kStreamThreads)
            copy_async<4>(coefficients() + i, merge_.coefficients + i);
    }
    /// Until the thread's copies are there; the block meets afterwards.
    __device__ void await_copies() const {
        commit_copies();
        wait_for_copies<0>();
    }
    /// The sub-layer's output in column `column` into the streams.
    __device__ void merge(std::uint32_t column, float y) const {
        if (merge_.n_streams == 4)
            merge_column<4>(column - first_, y);
        else
            merge_column<kStreamsMax>(column - first_, y);
    }
    /// Once all columns of the block are merged: its sums.
    __device__ void leave_sums() const {
        __syncthreads();
        on_fn_type(merge_.fn_type, [&](auto type) { leave_sums_of<decltype(type)::value>(); });
    }

private:
    static constexpr std::uint32_t kTogether = 3;  // sums of a warp: 4 streams have 34 of them

    Merge merge_;
    std::uint32_t first_;
    std::uint32_t count_;
    TailMemory memory_;

    [[nodiscard]] __device__ unsigned char* fn() const {
        return dynamic_shared() + memory_.fn_bytes;
    }
    [[nodiscard]] __device__ float* streams() const {
        return reinterpret_cast<float*>(dynamic_shared() + memory_.streams_bytes);
    }
    [[nodiscard]] __device__ float* coefficients() const {
        return reinterpret_cast<float*>(dynamic_shared() + memory_.coefficients_bytes);
    }

    template <WeightType kType>
    __device__ void copy_fn() const {
        constexpr std::uint32_t kWeightBytes = kType == WeightType::f32 ? 4 : 2;
        constexpr std::uint32_t kQuadBytes = kColumnsAtOnce * kWeightBytes;
        const std::uint32_t quads = count_ / kColumnsAtOnce;
        const std::uint32_t n = fn_rows(merge_.n_streams) * merge_.n_streams * quads;
        for (std::uint32_t at = threadIdx.x; at < n; at += kStreamThreads) {
            const std::uint32_t row_and_stream = at / quads;
            const unsigned char* from =
                merge_.fn + (std::uint64_t{row_and_stream} * merge_.hidden + first_ +
                             kColumnsAtOnce * (at - row_and_stream * quads)) *
                                kWeightBytes;
            if constexpr (kQuadBytes == 16)
                copy_async16(fn() + kQuadBytes * at, from);
            else
                copy_async<kQuadBytes>(fn() + kQuadBytes * at, from);
        }
    }

    template <std::uint32_t kStreams>
    __device__ void merge_column(std::uint32_t local, float y) const {
        const std::uint32_t n = kStreams == 4 ? 4 : merge_.n_streams;
        const float* factors = coefficients();  // post, then comb
        float before[kStreams];
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j)
            before[j] = j < n ? streams()[j * count_ + local] : 0.0f;
#pragma unroll
        for (std::uint32_t s = 0; s < kStreams; ++s) {
            if (s >= n) break;
            float after = factors[s] * y;
#pragma unroll
            for (std::uint32_t j = 0; j < kStreams; ++j)
                if (j < n) after += factors[n + j * n + s] * before[j];
            streams()[s * count_ + local] = after;
            merge_.streams[s * merge_.hidden + first_ + local] = after;
        }
    }

    /// A lane's part of one sum.
    template <WeightType kType>
    [[nodiscard]] __device__ float part_of(std::uint32_t value) const {
        const std::uint32_t lane = threadIdx.x % kWarp, n_rows = fn_rows(merge_.n_streams);
        float sum = 0.0f;
        if (value < n_rows) {
            const std::uint32_t quads = merge_.n_streams * count_ / kColumnsAtOnce;
            for (std::uint32_t at = lane; at < quads; at += kWarp)
                sum = dot_values(sum, four_weights<kType>(fn(), value * quads + at),
                                 reinterpret_cast<const float4*>(streams())[at]);
        } else {
            std::uint32_t s = 0;
            while (diagonal_value(s) < value - n_rows) ++s;
            const std::uint32_t t = s + value - n_rows - diagonal_value(s);
            for (std::uint32_t i = lane; i < count_; i += kWarp)
                sum += streams()[s * count_ + i] * streams()[t * count_ + i];
        }
        return sum;
    }

    /// Sums go to warps in turn, a few of each together: their shuffles do not wait for one
    /// another.
    template <WeightType kType>
    __device__ void leave_sums_of() const {
        const std::uint32_t warp = threadIdx.x / kWarp, n_sums = sum_count(merge_.n_streams);
        for (std::uint32_t first = warp; first < n_sums; first += kTogether * kStreamWarps) {
            float parts[kTogether];
#pragma unroll
            for (std::uint32_t i = 0; i < kTogether; ++i) {
                const std::uint32_t value = first + i * kStreamWarps;
                parts[i] = value < n_sums ? part_of<kType>(value) : 0.0f;
            }
#pragma unroll
            for (std::uint32_t i = 0; i < kTogether; ++i) {
                const std::uint32_t value = first + i * kStreamWarps;
                const float sum = warp_sum(parts[i]);
                if (threadIdx.x % kWarp == 0 && value < n_sums)
                    merge_.sums[value * kBlocksMax + blockIdx.x] = sum;
            }
        }
    }
};

}  // namespace plimsoll::kernels::cuda::hc
