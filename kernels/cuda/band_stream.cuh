#pragma once

// How a block streams its share of weight rows: the rows go in bands of Format::kBand, their pieces
// in segments of Format::kSteps * 32, and a task, what a warp takes at a time, is a segment of a
// band: 2 or 4 KB. All pieces of a task are in registers at once; as each is used, the same piece
// of the warp's next task is fetched in its place. So a warp always has some 4 KB under way, a
// multiprocessor with 16 warps 64 KB, twice what latency times bandwidth asks for on an H200
// (800 ns * 4.3 TB/s / 132 = 26 KB).
//
// A row's result is the sum of its segments in their order: it does not depend on which warp or
// block took which.

#include "kernels/cuda/shared_row.cuh"

namespace plimsoll::kernels::cuda {

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
    __device__ BandStream(const BandShare& share, const Planes& planes, std::uint32_t warp,
                          std::uint32_t n_warps)
        : share_(share),
          planes_(planes),
          task_(warp),
          n_warps_(n_warps),
          n_segments_(segments_of_row<Format>(share.n_pieces)),
          n_bands_(bands_of<Format>(share.row_last - share.row_first)),
          n_tasks_(n_segments_ * n_bands_ * share.n_matrices) {}

    /// Fetches the first task.
    __device__ void start() {
        place(task_);
#pragma unroll
        for (std::uint32_t step = 0; step < Format::kSteps; ++step) fetch(step);
    }

    /// The row behind those that the block's first tasks read.
    __device__ std::uint32_t first_row_not_started() const {
        const std::uint32_t row = share_.row_first + n_warps_ / n_segments_ * Format::kBand;
        return row < share_.row_last ? row : share_.row_last;
    }

    /// Every task of this warp; sums to partials[task][row of the band].
    template <class Rows>
    __device__ void run(const Rows& rows, float* partials) {
        const std::uint32_t lane = threadIdx.x % kWarp;
        while (task_ < n_tasks_) {
            const std::uint32_t task = task_, piece_first = piece_;
            const SharedRow x = rows(matrix_);
            task_ += n_warps_;
            place(task_);
            float acc[Format::kBand] = {};
#pragma unroll
            for (std::uint32_t step = 0; step < Format::kSteps; ++step) {
                const std::uint32_t piece = piece_first + step * kWarp;
                if (piece < share_.n_pieces) Format::dot(pieces_[step], x, piece, acc);
                fetch(step);
            }
            const float sum = band_sum(acc);
            if (lane % 8 == 0) partials[task * Format::kBand + lane / 8] = sum;
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

    /// Finds what `task` reads. Past the last one nothing is fetched.
    __device__ void place(std::uint32_t task) {
        if (task >= n_tasks_) {
            piece_ = share_.n_pieces;
            return;
        }
        const std::uint32_t band = task / n_segments_;
        piece_ = (task - band * n_segments_) * (Format::kSteps * kWarp) + threadIdx.x % kWarp;
        matrix_ = share_.n_matrices == 1 ? 0 : band / n_bands_;
        row_ = share_.row_first + (band - matrix_ * n_bands_) * Format::kBand;
    }
    /// Rows past the share's end are read as its last one, and their sums not used.
    __device__ void fetch(std::uint32_t step) {
        const std::uint32_t piece = piece_ + step * kWarp;
        if (piece >= share_.n_pieces) return;
        const WeightPlanes planes = planes_(matrix_);
#pragma unroll
        for (std::uint32_t r = 0; r < Format::kBand; ++r) {
            const std::uint32_t row = row_ + r < share_.row_last ? row_ + r : share_.row_last - 1;
            pieces_[step][r] = Format::load(planes, std::uint64_t{row} * share_.n_pieces + piece);
        }
    }

    BandShare share_;
    Planes planes_;
    std::uint32_t task_;
    std::uint32_t n_warps_;
    std::uint32_t n_segments_;
    std::uint32_t n_bands_;
    std::uint32_t n_tasks_;
    std::uint32_t matrix_ = 0;
    std::uint32_t row_ = 0;
    std::uint32_t piece_ = 0;
    typename Format::Piece pieces_[Format::kSteps][Format::kBand];
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
