#pragma once

#include "kernels/cuda/precise_tile.cuh"
#include "kernels/cuda/product_tile.cuh"

namespace plimsoll::kernels::cuda {

/// What the kernels of expert_ffn share. Inner rows are in the order of `assignments`, or of tokens
/// for the shared expert.
struct ExpertArguments {
    WeightPlanes gate, up, down;  // of expert 0
    std::uint64_t expert_stride_bytes;
    const std::int32_t* expert_offsets;  // null: the shared expert
    const std::int32_t* assignments;
    const std::int32_t* tiles;
    const float* expert_weights;
    const void* input;  // [T, hidden]
    void* mid;          // [T * k, ff_dim] in the type of `input`
    float* rows;        // [T * k, hidden] by assignment; null for the shared expert
    std::uint32_t n_experts_used;
    std::uint32_t n_tokens;
    std::uint32_t hidden;
    std::uint32_t ff_dim;
    float clamp;
};

/// A block's share of one expert's assignments.
struct ExpertTile {
    std::uint32_t expert = 0;
    std::uint32_t first = 0;  // in the list of assignments
    std::uint32_t n_rows = 0;

    __device__ ExpertTile(const ExpertArguments& arguments, std::uint32_t index,
                          std::uint32_t tile_rows) {
        if (arguments.expert_offsets == nullptr) {
            first = index * tile_rows;
            n_rows = min(tile_rows, arguments.n_tokens - first);
            return;
        }
        if (index >= static_cast<std::uint32_t>(arguments.tiles[0])) return;
        expert = static_cast<std::uint32_t>(arguments.tiles[1 + 2 * index]);
        first = static_cast<std::uint32_t>(arguments.tiles[2 + 2 * index]);
        const auto last = static_cast<std::uint32_t>(arguments.expert_offsets[expert + 1]);
        n_rows = min(tile_rows, last - first);
    }
    /// Assignment of a row; the token itself for the shared expert.
    __device__ std::uint32_t assignment(const ExpertArguments& arguments, std::uint32_t row) const {
        if (arguments.expert_offsets == nullptr) return first + row;
        return static_cast<std::uint32_t>(arguments.assignments[first + row]);
    }
    __device__ float weight(const ExpertArguments& arguments, std::uint32_t row) const {
        if (arguments.expert_offsets == nullptr) return 1.0f;
        return arguments.expert_weights[assignment(arguments, row)];
    }
};

/// An expert's planes from those of expert 0.
__device__ inline WeightPlanes planes_at(const WeightPlanes& planes, std::uint64_t offset_bytes) {
    return {planes.quants + offset_bytes, planes.scales + offset_bytes, planes.tail + offset_bytes};
}

/// Gate and up of a tile's tokens, rows from `row_first` on.
__device__ inline TileSource up_source(const ExpertArguments& arguments, const ExpertTile& tile,
                                       std::uint32_t row_first) {
    const std::uint64_t offset_bytes = tile.expert * arguments.expert_stride_bytes;
    TileSource source{};
    source.input = arguments.input;
    source.input_stride = arguments.hidden;
    source.n_in = arguments.hidden;
    source.weights[0] = planes_at(arguments.gate, offset_bytes);
    source.weights[1] = planes_at(arguments.up, offset_bytes);
    source.row_first = row_first;
    source.row_end = arguments.ff_dim;
    return source;
}
/// Down of a tile's inner rows.
__device__ inline TileSource down_source(const ExpertArguments& arguments, const ExpertTile& tile,
                                         std::uint32_t row_first) {
    TileSource source{};
    source.input = arguments.mid;
    source.input_stride = arguments.ff_dim;
    source.n_in = arguments.ff_dim;
    source.weights[0] = planes_at(arguments.down, tile.expert * arguments.expert_stride_bytes);
    source.row_first = row_first;
    source.row_end = arguments.hidden;
    return source;
}

__device__ __forceinline__ float clamped(float x, float clamp) {
    return fminf(fmaxf(x, -clamp), clamp);
}

/// Block (x, y): column tile x of the expert tile y, so that blocks that run together share inputs
/// and blocks soon after them the expert's weights. Blocks past the last tile have nothing to do.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor)
    expert_up_kernel(const ExpertArguments arguments) {
    wait_for_previous_kernel();
    const ExpertTile tile(arguments, blockIdx.y, Tile::kTokens);
    if (tile.n_rows == 0) return;
    const TileSource source = up_source(arguments, tile, blockIdx.x * (Tile::kOutputs / 2));
    TileSums<Tile> sums;
    multiply_tile<Tile>(
        source, tile.n_rows,
        [&](std::uint32_t row) {
            return static_cast<std::int32_t>(tile.assignment(arguments, row) /
                                             arguments.n_experts_used);
        },
        sums);
    allow_next_kernel();

    constexpr std::uint32_t kHalf = Tile::kAcross / 2;
    auto* mid = static_cast<__half*>(arguments.mid) + std::uint64_t{tile.first} * arguments.ff_dim;
    for_each_pair<Tile, kHalf>([&](std::uint32_t row, std::uint32_t column, std::uint32_t f,
                                   std::uint32_t n, std::uint32_t i) {
        const std::uint32_t at = source.row_first + column;
        if (row >= tile.n_rows || at >= arguments.ff_dim) return;
        const float weight = tile.weight(arguments, row);
        float inner[2];
#pragma unroll
        for (std::uint32_t j = 0; j < 2; ++j) {
            const float gate = fminf(sums[f][n][i + j], arguments.clamp);
            const float up = sums[f + kHalf][n][i + j];
            inner[j] = __fdividef(gate, 1.0f + __expf(-gate)) * clamped(up, arguments.clamp);
        }
        *reinterpret_cast<__half2*>(mid + std::uint64_t{row} * arguments.ff_dim + at) =
            __floats2half2_rn(saturate_f16(inner[0] * weight), saturate_f16(inner[1] * weight));
    });
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor)
    expert_down_kernel(const ExpertArguments arguments) {
    wait_for_previous_kernel();
    const ExpertTile tile(arguments, blockIdx.y, Tile::kTokens);
    if (tile.n_rows == 0) return;
    const TileSource source = down_source(arguments, tile, blockIdx.x * Tile::kOutputs);
    TileSums<Tile> sums;
    multiply_tile<Tile>(
        source, tile.n_rows,
        [&](std::uint32_t row) { return static_cast<std::int32_t>(tile.first + row); }, sums);
    allow_next_kernel();

    for_each_pair<Tile, Tile::kAcross>([&](std::uint32_t row, std::uint32_t column, std::uint32_t f,
                                           std::uint32_t n, std::uint32_t i) {
        const std::uint32_t at = source.row_first + column;
        if (row >= tile.n_rows || at >= arguments.hidden) return;
        float* to =
            arguments.rows + std::uint64_t{tile.assignment(arguments, row)} * arguments.hidden;
        *reinterpret_cast<float2*>(to + at) = make_float2(sums[f][n][i], sums[f][n][i + 1]);
    });
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    precise_up_kernel(const ExpertArguments arguments) {
    wait_for_previous_kernel();
    const ExpertTile tile(arguments, blockIdx.y, Tile::kTokens);
    if (tile.n_rows == 0) return;
    const TileSource source = up_source(arguments, tile, blockIdx.x * Tile::kOutputs);
    PreciseSums<Tile> sums;
    multiply_precise<Tile>(
        source, tile.n_rows,
        [&](std::uint32_t row) {
            return tile.assignment(arguments, row) / arguments.n_experts_used;
        },
        sums);
    allow_next_kernel();

    const PrecisePlace<Tile> place;
    constexpr std::uint32_t kHalf = Tile::kAcross / 2;
#pragma unroll
    for (std::uint32_t m = 0; m < Tile::kDown; ++m) {
        if (place.row(m) >= tile.n_rows) continue;
        const float weight = tile.weight(arguments, place.row(m));
        float* to = static_cast<float*>(arguments.mid) +
                    std::uint64_t{tile.first + place.row(m)} * arguments.ff_dim;
#pragma unroll
        for (std::uint32_t n = 0; n < kHalf; ++n) {
            const std::uint32_t column = source.row_first + place.across * kHalf + n;
            if (column >= arguments.ff_dim) continue;
            const float gate = fminf(sums[m][n], arguments.clamp);
            const float up = clamped(sums[m][n + kHalf], arguments.clamp);
            to[column] = gate / (1.0f + expf(-gate)) * up * weight;
        }
    }
}

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    precise_down_kernel(const ExpertArguments arguments) {
    wait_for_previous_kernel();
    const ExpertTile tile(arguments, blockIdx.y, Tile::kTokens);
    if (tile.n_rows == 0) return;
    const TileSource source = down_source(arguments, tile, blockIdx.x * Tile::kOutputs);
    PreciseSums<Tile> sums;
    multiply_precise<Tile>(
        source, tile.n_rows, [&](std::uint32_t row) { return tile.first + row; }, sums);
    allow_next_kernel();

    const PrecisePlace<Tile> place;
#pragma unroll
    for (std::uint32_t m = 0; m < Tile::kDown; ++m) {
        if (place.row(m) >= tile.n_rows) continue;
        float* to = arguments.rows +
                    std::uint64_t{tile.assignment(arguments, place.row(m))} * arguments.hidden;
#pragma unroll
        for (std::uint32_t n = 0; n < Tile::kAcross; ++n) {
            const std::uint32_t column = source.row_first + place.across * Tile::kAcross + n;
            if (column < arguments.hidden) to[column] = sums[m][n];
        }
    }
}

}  // namespace plimsoll::kernels::cuda
