#pragma once

// Rows of an expert's gate and up as one block streams them: of the shared expert
// (decode_router.cu) and of routed ones (decode_experts_up.cu).

#include <algorithm>

#include "kernels/cuda/band_stream.cuh"

namespace plimsoll::kernels::cuda {

struct GateAndUp {
    WeightPlanes gate, up;
    __device__ const WeightPlanes& operator()(std::uint32_t matrix) const {
        return matrix == 0 ? gate : up;
    }
};

/// An element of the inner row.
__device__ __forceinline__ float swiglu(float gate, float up, float clamp) {
    gate = fminf(gate, clamp);
    up = fminf(fmaxf(up, -clamp), clamp);
    return gate / (1.0f + expf(-gate)) * up;
}

/// Rows of matrices of one shape that are spread over blocks.
struct SpreadRows {
    WeightType type;
    std::uint32_t n_in;
    std::uint32_t n_rows;
    std::uint32_t n_matrices;
};
/// How many blocks: those aimed at, but none empty and none with more than `partials_max` partial
/// sums. Raises shared_bytes to what one of them needs.
inline std::uint32_t blocks_of(const SpreadRows& rows, double aim, std::uint32_t partials_max,
                               std::uint32_t& shared_bytes) {
    const std::uint32_t bands = (rows.n_rows + 3) / 4;
    std::uint32_t n_blocks = 0;
    with_format(rows.type, [&](auto format) {
        using Format = decltype(format);
        const std::uint32_t n_pieces = rows.n_in / Format::kPiece;
        const std::uint32_t bands_max =
            std::max(1u, partials_max / partials_of<Format>(1, n_pieces, rows.n_matrices));
        n_blocks =
            std::clamp(static_cast<std::uint32_t>(aim), (bands + bands_max - 1) / bands_max, bands);
        const std::uint32_t rows_max = (bands + n_blocks - 1) / n_blocks * 4;
        shared_bytes = std::max(
            shared_bytes, StreamMemory<Format>(rows.n_in, rows_max, rows.n_matrices).size_bytes);
    });
    return n_blocks;
}

}  // namespace plimsoll::kernels::cuda
