#pragma once

// How a block streams its share of weight rows: the rows go in bands of Format::kBand, their pieces
// in segments of Format::kSteps * 32, and a task, what a warp takes at a time, is a segment of a
// band: 2 or 4 KB. Weights come through rings in shared memory, each lane's its own: a thread waits
// for its own copies alone, and as a unit of 32 pieces of a band is used, another is fetched in its
// place. So a block of 16 warps always has 64 KB under way, twice what latency times bandwidth asks
// for on an H200 (800 ns * 4.3 TB/s / 132 = 26 KB); and since a ring takes no registers, two blocks
// fit on a multiprocessor: that of the next launch fills its ring while this one still runs.
//
// A row's result is the sum of its segments in their order: it does not depend on which warp or
// block took which.

#include "kernels/cuda/shared_row.cuh"

namespace plimsoll::kernels::cuda {

/// Of every kernel that streams: one block a multiprocessor, and room for the next launch's.
inline constexpr std::uint32_t kStreamThreads = 512;
inline constexpr std::uint32_t kStreamWarps = kStreamThreads / kWarp;
inline constexpr std::uint32_t kResidentStreams = 2;

/// Units in a warp's ring.
inline constexpr std::uint32_t kRingUnits = 2;
template <class Format>
inline constexpr std::uint32_t kUnitBytes = Format::kBand* Format::kRingBytes* kWarp;
template <class Format>
inline constexpr std::uint32_t kRingBytesOfBlock = kStreamWarps* kRingUnits* kUnitBytes<Format>;

/// A block's share: rows [row_first, row_last) of each of n_matrices of one shape.
struct BandShare {
    std::uint32_t row_first;
    std::uint32_t row_last;
    std::uint32_t n_pieces;  // of a row
    std::uint32_t n_matrices;
};

template <class Format>
__host__ __device__ constexpr std::uint32_t segments_of_row(std::uint32_t n_pieces) {
    constexpr std::uint32_t kPieces = Format::kSteps * kWarp;
    return (n_pieces + kPieces - 1) / kPieces;
}
template <class Format>
__host__ __device__ constexpr std::uint32_t bands_of(std::uint32_t n_rows) {
    return (n_rows + Format::kBand - 1) / Format::kBand;
}
/// Floats of partial sums of a share, in shared memory.
template <class Format>
__host__ __device__ constexpr std::uint32_t partials_of(std::uint32_t n_rows,
                                                        std::uint32_t n_pieces,
                                                        std::uint32_t n_matrices) {
    return bands_of<Format>(n_rows) * Format::kBand * segments_of_row<Format>(n_pieces) *
           n_matrices;
}

/// Shared memory of a block that streams rows of n_matrices: tables of IQ2_XXS, the input row, the
/// ring, partial sums.
template <class Format>
struct StreamMemory {
    std::uint32_t row_bytes;
    std::uint32_t ring_bytes;
    std::uint32_t partials_bytes;
    std::uint32_t size_bytes;

    __host__ __device__ StreamMemory(std::uint32_t n_in, std::uint32_t rows_max,
                                     std::uint32_t n_matrices)
        : row_bytes(kTablesBytes<Format>),
          ring_bytes(row_bytes + (shared_row_layout<Format>(n_in).size_bytes + 15) / 16 * 16),
          partials_bytes(ring_bytes + kRingBytesOfBlock<Format>),
          size_bytes(partials_bytes +
                     partials_of<Format>(rows_max, n_in / Format::kPiece, n_matrices) * 4) {}
};

/// What a prefetch brings: a line, of which DRAM gives halves.
inline constexpr std::uint32_t kSectorBytes = 64;

/// Warp sums of four values; that of value lane / 8 is returned. Six shuffles instead of twenty.
__device__ __forceinline__ float band_sum(const float (&acc)[4]) {
    const bool upper = (threadIdx.x & 16u) != 0;
    const float a =
        (upper ? acc[2] : acc[0]) + __shfl_xor_sync(kAllLanes, upper ? acc[0] : acc[2], 16);
    const float b =
        (upper ? acc[3] : acc[1]) + __shfl_xor_sync(kAllLanes, upper ? acc[1] : acc[3], 16);
    const bool odd = (threadIdx.x & 8u) != 0;
    float sum = (odd ? b : a) + __shfl_xor_sync(kAllLanes, odd ? a : b, 8);
    for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAllLanes, sum, offset);
    return sum;
}

/// `Planes` is callable: planes(matrix) gives a matrix's WeightPlanes. `Rows` likewise:
/// rows(matrix) gives the SharedRow that a matrix meets.
template <class Format, class Planes>
class BandStream {
public:
    /// `ring_bytes`: where the block's rings begin in dynamic shared memory.
    __device__ BandStream(const BandShare& share, const Planes& planes, std::uint32_t ring_bytes)
        : share_(share),
          planes_(planes),
          ring_bytes_(ring_bytes + threadIdx.x / kWarp * (kRingUnits * kUnitBytes<Format>)),
          n_segments_(segments_of_row<Format>(share.n_pieces)),
          n_bands_(bands_of<Format>(share.row_last - share.row_first)),
          n_tasks_(n_segments_ * n_bands_ * share.n_matrices),
          band_step_(kStreamWarps / n_segments_),
          segment_step_(kStreamWarps % n_segments_) {
        const std::uint32_t warp = threadIdx.x / kWarp, band = warp / n_segments_;
        used_ = {warp, warp - band * n_segments_, band, 0};
        find_matrix(used_);
        fetched_ = used_;
    }

    /// Fetches the first units.
    __device__ void start() {
        __syncwarp();  // the ring may have been another stream's, whose lanes lay elsewhere
#pragma unroll
        for (std::uint32_t unit = 0; unit < kRingUnits; ++unit) fetch(unit % Format::kSteps, unit);
    }

    /// The state that start() has left another stream of the same share, without its copies.
    __device__ void resume() {
        for (std::uint32_t task = 0; task < kRingUnits / Format::kSteps; ++task) advance(fetched_);
    }

    /// The row behind those that the block's first units read.
    __device__ std::uint32_t first_row_not_started() const {
        const std::uint32_t n_started = kStreamWarps * kRingUnits / Format::kSteps;
        const std::uint32_t row = share_.row_first + n_started / n_segments_ * Format::kBand;
        return row < share_.row_last ? row : share_.row_last;
    }

    /// Every task of this warp; sums to partials[task][row of the band].
    template <class Rows>
    __device__ void run(const Rows& rows, float* partials) {
        const std::uint32_t lane = threadIdx.x % kWarp;
        std::uint32_t unit = 0;
        while (used_.task < n_tasks_) {
            const SharedRow x = rows(used_.matrix);
            float acc[Format::kBand] = {};
#pragma unroll
            for (std::uint32_t step = 0; step < Format::kSteps; ++step) {
                if constexpr (Format::kSteps == kRingUnits) unit = step;
                wait_for_copies<kRingUnits - 1>();
                const std::uint32_t piece = piece_of(used_, step);
                if (piece < share_.n_pieces) add_unit(unit, x, piece, acc);
                keep_order();
                fetch(step, unit);
            }
            if constexpr (Format::kSteps == 1) unit ^= 1u;
            const float sum = band_sum(acc);
            if (lane % 8 == 0) partials[used_.task * Format::kBand + lane / 8] = sum;
            advance(used_);
        }
    }

    /// The product of a row of the share, once all warps have run and met.
    __device__ float row_sum(const float* partials, std::uint32_t matrix, std::uint32_t row) const {
        const std::uint32_t local = row - share_.row_first;
        const float* first =
            partials + (matrix * n_bands_ + local / Format::kBand) * n_segments_ * Format::kBand +
            local % Format::kBand;
        float sum = 0.0f;
        for (std::uint32_t s = 0; s < n_segments_; ++s) sum += first[s * Format::kBand];
        return sum;
    }

private:
    static_assert(Format::kBand == 4, "band_sum takes four rows");
    static_assert(Format::kSteps == 1 || Format::kSteps == kRingUnits, "units follow the steps");
    static_assert(kRingUnits == 2, "a unit's number is a bit");

    /// A task of this warp, and where it lies. Advanced without divisions: the loop is short.
    struct Cursor {
        std::uint32_t task;
        std::uint32_t segment;
        std::uint32_t band;
        std::uint32_t matrix;
    };
    __device__ void find_matrix(Cursor& at) const {
        while (at.band >= n_bands_ && at.matrix < share_.n_matrices) {
            at.band -= n_bands_;
            ++at.matrix;
        }
    }
    __device__ void advance(Cursor& at) const {
        at.task += kStreamWarps;
        at.band += band_step_;
        at.segment += segment_step_;
        if (at.segment >= n_segments_) {
            at.segment -= n_segments_;
            ++at.band;
        }
        find_matrix(at);
    }
    __device__ std::uint32_t piece_of(const Cursor& at, std::uint32_t step) const {
        return (at.segment * Format::kSteps + step) * kWarp + threadIdx.x % kWarp;
    }
    __device__ std::uint32_t row_of(const Cursor& at) const {
        return share_.row_first + at.band * Format::kBand;
    }
    /// Where this unit of a band's row lies in the warp's ring.
    __device__ unsigned char* slot(std::uint32_t unit, std::uint32_t row) const {
        return dynamic_shared() + ring_bytes_ +
               (unit * Format::kBand + row) * (Format::kRingBytes * kWarp);
    }

    __device__ void add_unit(std::uint32_t unit, const SharedRow& x, std::uint32_t piece,
                             float (&acc)[Format::kBand]) const {
        typename Format::Piece pieces[Format::kBand];
#pragma unroll
        for (std::uint32_t r = 0; r < Format::kBand; ++r)
            pieces[r] = Format::take(slot(unit, r), (row_of(used_) + r) * share_.n_pieces + piece);
        Format::dot(pieces, x, piece, acc);
    }
    /// Step `step` of the next task to fetch. Past the last one nothing is. Rows past the share's
    /// end are read as its last one, and their sums not used.
    __device__ void fetch(std::uint32_t step, std::uint32_t unit) {
        const std::uint32_t piece = piece_of(fetched_, step);
        if (fetched_.task < n_tasks_ && piece < share_.n_pieces) {
            const WeightPlanes planes = planes_(fetched_.matrix);
            const std::uint32_t first = row_of(fetched_);
#pragma unroll
            for (std::uint32_t r = 0; r < Format::kBand; ++r) {
                const std::uint32_t row =
                    first + r < share_.row_last ? first + r : share_.row_last - 1;
                Format::copy(slot(unit, r), planes, std::uint64_t{row} * share_.n_pieces + piece);
            }
        }
        commit_copies();
        if (step + 1 == Format::kSteps) advance(fetched_);
    }

    BandShare share_;
    Planes planes_;
    std::uint32_t ring_bytes_;
    std::uint32_t n_segments_;
    std::uint32_t n_bands_;
    std::uint32_t n_tasks_;
    std::uint32_t band_step_;
    std::uint32_t segment_step_;
    Cursor used_;
    Cursor fetched_;
};

/// Asks for all the bytes of some rows in L2, by the whole block: for what cannot be fetched into
/// registers yet.
template <class Format>
__device__ void prefetch_rows(const WeightPlanes& planes, std::uint32_t n_in,
                              std::uint32_t row_first, std::uint32_t row_last) {
    const auto plane = [&](const unsigned char* start, std::uint32_t row_bytes) {
        const unsigned char* from = start + std::uint64_t{row_first} * row_bytes;
        const std::uint32_t size_bytes = (row_last - row_first) * row_bytes;
        for (std::uint32_t at = threadIdx.x * kSectorBytes; at < size_bytes;
             at += blockDim.x * kSectorBytes)
            prefetch_l2(from + at);
    };
    plane(planes.quants, n_in / Format::kPiece * 16);
    plane(planes.scales, n_in / Format::kPiece * Format::kScaleBytes / 16);
    plane(planes.tail, n_in / Format::kPiece * Format::kTailBytes / 16);
}

inline void check_matrix(const WeightMatrix& weight, std::uint32_t n_in, std::uint32_t n_out) {
    PLIMSOLL_KERNEL_CHECK(weight.n_in == n_in, "an expert's matrix has another width");
    PLIMSOLL_KERNEL_CHECK(weight.n_out == n_out, "an expert's matrix has another height");
    PLIMSOLL_KERNEL_CHECK(n_in % info_of(weight.type).block_elements == 0,
                          "weight rows are whole blocks");
    PLIMSOLL_KERNEL_CHECK(
        weight_row_bytes(weight.type, n_in) % 16 == 0 || info_of(weight.type).block_elements > 1,
        "rows of floating-point weights are multiples of 16 bytes");
}
/// Rows [first, last) of share `index` of n_shares of n_rows, in whole bands of four.
struct RowRange {
    std::uint32_t first;
    std::uint32_t last;
};
__host__ __device__ constexpr RowRange share_of_rows(std::uint32_t n_rows, std::uint32_t n_shares,
                                                     std::uint32_t index) {
    const std::uint64_t bands = (n_rows + 3) / 4;
    const auto first = static_cast<std::uint32_t>(bands * index / n_shares * 4);
    const auto last = static_cast<std::uint32_t>(bands * (index + 1) / n_shares * 4);
    return {first < n_rows ? first : n_rows, last < n_rows ? last : n_rows};
}

}  // namespace plimsoll::kernels::cuda
