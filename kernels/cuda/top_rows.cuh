#pragma once

// The top_k largest of a list of scores by one block, exactly, ties to the lower row, in ascending
// order of rows.
//
// 1. Scores go into 2,048 bins of equal width between the smallest and the largest: a function that
//    never falls, so all scores of a higher bin are larger. One pass over a histogram finds the bin
//    of the last one kept.
// 2. That bin holds a handful, ranked against one another. Where it holds more than the block has
//    threads (equal or wildly spread scores), its threshold is found bit by bit instead.
// 3. Rows above the threshold, and the first of those on it, are written in order.
//
// Up to kItems scores a thread stay in registers; longer lists are read again in each step.

#include "kernels/cuda/intrinsics.cuh"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kScoreBins = 2048;

/// Unsigned integers in the order of the floats; both zeros are one.
__device__ __forceinline__ std::uint32_t ordered_key(float score) {
    const std::uint32_t bits = __float_as_uint(score + 0.0f);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// What the block shares.
template <std::uint32_t kThreads>
struct TopShared {
    std::uint32_t histogram[kScoreBins];
    std::uint32_t candidates[kThreads];  // keys
    std::uint32_t warp_counts[2][kThreads / kWarp];
    float warp_values[2][kThreads / kWarp];
    std::uint32_t n_candidates;
    std::uint32_t threshold_bin;
    std::uint32_t n_wanted;  // of the threshold's bin
    std::uint32_t bin_count;
    std::uint32_t threshold;  // key of the last one kept
    std::uint32_t n_ties;     // kept of those that equal it
};

/// A list's scores, and where a kept one goes: consecutive rows, their ids to `selected`.
struct PlainScores {
    const float* scores;
    std::int32_t* selected;

    __device__ __forceinline__ float score_at(std::uint32_t i) const { return __ldcg(scores + i); }
    __device__ __forceinline__ void keep(std::uint32_t position, std::uint32_t i, float) const {
        selected[position] = static_cast<std::int32_t>(i);
    }
};

/// The list: warp w of the block owns 32 * items consecutive entries, lane l of it every 32nd.
template <std::uint32_t kThreads, std::uint32_t kItems, class Source>
struct ScoreList {
    Source source;
    std::uint32_t n;
    std::uint32_t items;  // a lane's, ceil(n / kThreads)
    float held[kItems == 0 ? 1 : kItems];

    __device__ __forceinline__ std::uint32_t entry_of(std::uint32_t item) const {
        return (threadIdx.x / kWarp * items + item) * kWarp + threadIdx.x % kWarp;
    }
    /// `visit(entry, score, exists)`, by all lanes of a warp together and in ascending order.
    template <class Visit>
    __device__ __forceinline__ void for_each(Visit visit) const {
        constexpr std::uint32_t kAtOnce = kItems == 0 ? 8 : kItems;
        for (std::uint32_t first = 0; first < (kItems == 0 ? items : 1u); first += kAtOnce) {
            float loaded[kAtOnce];
#pragma unroll
            for (std::uint32_t i = 0; i < kAtOnce; ++i) {
                if constexpr (kItems == 0)
                    loaded[i] = load(first + i);
                else
                    loaded[i] = held[i];
            }
#pragma unroll
            for (std::uint32_t i = 0; i < kAtOnce; ++i) {
                if (first + i >= items) break;
                const std::uint32_t entry = entry_of(first + i);
                visit(entry, loaded[i], entry < n);
            }
        }
    }
    __device__ __forceinline__ float load(std::uint32_t item) const {
        const std::uint32_t entry = entry_of(item);
        return item < items && entry < n ? source.score_at(entry) : 0.0f;
    }
};

template <std::uint32_t kThreads, std::uint32_t kItems, class Source>
__device__ __forceinline__ ScoreList<kThreads, kItems, Source> load_scores(const Source& source,
                                                                           std::uint32_t n) {
    ScoreList<kThreads, kItems, Source> list{};
    list.source = source;
    list.n = n;
    list.items = (n + kThreads - 1) / kThreads;
    if constexpr (kItems > 0) {
#pragma unroll
        for (std::uint32_t i = 0; i < kItems; ++i) list.held[i] = list.load(i);
    }
    return list;
}

/// Bins of equal width over [lowest, lowest + (kScoreBins - 1) / per_unit].
struct ScoreBins {
    float lowest;
    float per_unit;

    /// Rises with the score; 0 where the range is empty, infinite or NaN.
    __device__ __forceinline__ std::uint32_t bin_of(float score) const {
        const float at = fmaxf((score - lowest) * per_unit, 0.0f);
        return __float2uint_rz(fminf(at, static_cast<float>(kScoreBins - 1)));
    }
};

template <std::uint32_t kThreads, class List>
__device__ __forceinline__ ScoreBins score_bins(const List& list, TopShared<kThreads>& shared) {
    const float infinity = __uint_as_float(0x7f800000u);
    float lowest = infinity, highest = -infinity;
    list.for_each([&](std::uint32_t, float score, bool exists) {
        if (!exists) return;
        lowest = fminf(lowest, score);
        highest = fmaxf(highest, score);
    });
    lowest = -warp_max(-lowest);
    highest = warp_max(highest);
    if (threadIdx.x % kWarp == 0) {
        shared.warp_values[0][threadIdx.x / kWarp] = lowest;
        shared.warp_values[1][threadIdx.x / kWarp] = highest;
    }
    for (std::uint32_t i = threadIdx.x; i < kScoreBins; i += kThreads) shared.histogram[i] = 0;
    if (threadIdx.x == 0) shared.n_candidates = 0;
    __syncthreads();
    for (std::uint32_t warp = 0; warp < kThreads / kWarp; ++warp) {
        lowest = fminf(lowest, shared.warp_values[0][warp]);
        highest = fmaxf(highest, shared.warp_values[1][warp]);
    }
    const float per_unit = static_cast<float>(kScoreBins - 1) / (highest - lowest);
    return {lowest, highest > lowest && per_unit < infinity ? per_unit : 0.0f};
}

/// Sum over the lanes below, without the lane's own.
__device__ __forceinline__ std::uint32_t sum_below(std::uint32_t own) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    std::uint32_t sum = own;
    for (std::uint32_t offset = 1; offset < kWarp; offset *= 2) {
        const std::uint32_t other = __shfl_up_sync(kAllLanes, sum, offset);
        if (lane >= offset) sum += other;
    }
    return sum - own;
}

/// The bin of the top_k-th largest, and how many of it are wanted. Thread i owns the i-th group of
/// bins from the top.
template <std::uint32_t kThreads>
__device__ __forceinline__ void find_threshold_bin(std::uint32_t top_k,
                                                   TopShared<kThreads>& shared) {
    constexpr std::uint32_t kOwn = kScoreBins / kThreads;
    const std::uint32_t top = kScoreBins - 1 - threadIdx.x * kOwn;
    std::uint32_t counts[kOwn], own = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kOwn; ++i) own += counts[i] = shared.histogram[top - i];
    std::uint32_t above = sum_below(own);
    if (threadIdx.x % kWarp == kWarp - 1) shared.warp_counts[0][threadIdx.x / kWarp] = above + own;
    __syncthreads();
    for (std::uint32_t warp = 0; warp < threadIdx.x / kWarp; ++warp)
        above += shared.warp_counts[0][warp];
    if (above < top_k && top_k <= above + own) {
        std::uint32_t i = 0;
#pragma unroll
        for (std::uint32_t bin = 0; bin + 1 < kOwn; ++bin)
            if (i == bin && above + counts[bin] < top_k) {
                above += counts[bin];
                ++i;
            }
        shared.threshold_bin = top - i;
        shared.n_wanted = top_k - above;
        shared.bin_count = shared.histogram[top - i];
    }
    __syncthreads();
}

/// The threshold among the candidates listed in shared memory, one a thread.
template <std::uint32_t kThreads>
__device__ __forceinline__ void rank_candidates(TopShared<kThreads>& shared) {
    const std::uint32_t n = shared.bin_count, wanted = shared.n_wanted;
    if (threadIdx.x < n) {
        const std::uint32_t own = shared.candidates[threadIdx.x];
        std::uint32_t larger = 0, equal = 0;
        for (std::uint32_t i = 0; i < n; ++i) {
            const std::uint32_t other = shared.candidates[i];
            larger += other > own ? 1u : 0u;
            equal += other == own ? 1u : 0u;
        }
        // Threads with equal keys write the same.
        if (larger < wanted && wanted <= larger + equal) {
            shared.threshold = own;
            shared.n_ties = wanted - larger;
        }
    }
    __syncthreads();
}

template <std::uint32_t kThreads>
__device__ __forceinline__ std::uint32_t block_count(std::uint32_t own, std::uint32_t* counts) {
    own = __reduce_add_sync(kAllLanes, own);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) counts[threadIdx.x / kWarp] = own;
    __syncthreads();
    std::uint32_t sum = 0;
    for (std::uint32_t warp = 0; warp < kThreads / kWarp; ++warp) sum += counts[warp];
    return sum;
}

/// The same for any number of candidates: the largest key that `wanted` of them reach.
template <std::uint32_t kThreads, class List>
__device__ __forceinline__ void search_threshold(const List& list, const ScoreBins& bins,
                                                 TopShared<kThreads>& shared) {
    const std::uint32_t bin = shared.threshold_bin, wanted = shared.n_wanted;
    const auto count_from = [&](std::uint32_t key) {
        std::uint32_t own = 0;
        list.for_each([&](std::uint32_t, float score, bool exists) {
            if (exists && bins.bin_of(score) == bin && ordered_key(score) >= key) ++own;
        });
        return block_count<kThreads>(own, shared.warp_counts[0]);
    };
    std::uint32_t threshold = 0;
    for (std::uint32_t bit = 0x80000000u; bit != 0; bit /= 2)
        if (count_from(threshold | bit) >= wanted) threshold |= bit;
    const std::uint32_t larger = threshold + 1 != 0 ? count_from(threshold + 1) : 0;
    if (threadIdx.x == 0) {
        shared.threshold = threshold;
        shared.n_ties = wanted - larger;
    }
    __syncthreads();
}

/// Entries above the threshold and the first n_ties on it, ascending.
template <std::uint32_t kThreads, class List>
__device__ __forceinline__ void keep_best(const List& list, TopShared<kThreads>& shared) {
    const std::uint32_t threshold = shared.threshold, n_ties = shared.n_ties;
    const std::uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    std::uint32_t larger = 0, equal = 0;
    list.for_each([&](std::uint32_t, float score, bool exists) {
        const std::uint32_t key = ordered_key(score);
        larger += exists && key > threshold ? 1u : 0u;
        equal += exists && key == threshold ? 1u : 0u;
    });
    larger = __reduce_add_sync(kAllLanes, larger);
    equal = __reduce_add_sync(kAllLanes, equal);
    if (lane == 0) {
        shared.warp_counts[0][warp] = larger;
        shared.warp_counts[1][warp] = equal;
    }
    __syncthreads();
    larger = equal = 0;
    for (std::uint32_t before = 0; before < warp; ++before) {
        larger += shared.warp_counts[0][before];
        equal += shared.warp_counts[1][before];
    }
    const std::uint32_t lower_lanes = (1u << lane) - 1;
    list.for_each([&](std::uint32_t entry, float score, bool exists) {
        const std::uint32_t key = ordered_key(score);
        const bool is_larger = exists && key > threshold, is_equal = exists && key == threshold;
        const std::uint32_t all_larger = __ballot_sync(kAllLanes, is_larger);
        const std::uint32_t all_equal = __ballot_sync(kAllLanes, is_equal);
        const std::uint32_t equal_before =
            equal + static_cast<std::uint32_t>(__popc(all_equal & lower_lanes));
        if (is_larger || (is_equal && equal_before < n_ties))
            list.source.keep(larger + static_cast<std::uint32_t>(__popc(all_larger & lower_lanes)) +
                                 min(equal_before, n_ties),
                             entry, score);
        larger += static_cast<std::uint32_t>(__popc(all_larger));
        equal += static_cast<std::uint32_t>(__popc(all_equal));
    });
}

template <std::uint32_t kThreads, std::uint32_t kItems, class Source>
__device__ __noinline__ void select_from(const Source& source, std::uint32_t n, std::uint32_t top_k,
                                         TopShared<kThreads>& shared) {
    const auto list = load_scores<kThreads, kItems>(source, n);
    const ScoreBins bins = score_bins<kThreads>(list, shared);
    list.for_each([&](std::uint32_t, float score, bool exists) {
        if (exists) atomicAdd(&shared.histogram[bins.bin_of(score)], 1u);
    });
    __syncthreads();
    find_threshold_bin<kThreads>(top_k, shared);
    const std::uint32_t bin = shared.threshold_bin;
    if (shared.bin_count <= kThreads) {
        list.for_each([&](std::uint32_t, float score, bool exists) {
            if (exists && bins.bin_of(score) == bin)
                shared.candidates[atomicAdd(&shared.n_candidates, 1u)] = ordered_key(score);
        });
        __syncthreads();
        rank_candidates<kThreads>(shared);
    } else {
        search_threshold<kThreads>(list, bins, shared);
    }
    keep_best<kThreads>(list, shared);
}

/// Keeps all of a list of no more than top_k, else the top_k best; a block together. Lists of up to
/// kItemsFew or kItemsMany scores a thread are held in registers. A source's scores may be
/// overwritten by what is kept where they are held.
template <std::uint32_t kThreads, std::uint32_t kItemsFew, std::uint32_t kItemsMany, class Source>
__device__ __forceinline__ void select_rows(const Source& source, std::uint32_t n,
                                            std::uint32_t top_k, TopShared<kThreads>& shared) {
    if (n <= top_k) {
        for (std::uint32_t i = threadIdx.x; i < n; i += kThreads)
            source.keep(i, i, source.score_at(i));
    } else if (n <= kItemsFew * kThreads) {
        select_from<kThreads, kItemsFew>(source, n, top_k, shared);
    } else if (n <= kItemsMany * kThreads) {
        select_from<kThreads, kItemsMany>(source, n, top_k, shared);
    } else {
        select_from<kThreads, 0>(source, n, top_k, shared);
    }
}

}  // namespace plimsoll::kernels::cuda
