#pragma once

#include "kernels/cuda/product_tile.cuh"

namespace plimsoll::kernels::cuda {

/// Block (x, y): token tile x of column tile y; blocks that run together share weights through L2
/// and, being many, all of the inputs.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor)
    product_kernel(const ProductArguments arguments) {
    wait_for_previous_kernel();
    const std::uint32_t group = blockIdx.y / arguments.group_tiles;
    const std::uint32_t row_first =
        group * arguments.group_rows + blockIdx.y % arguments.group_tiles * Tile::kOutputs;
    const std::uint32_t token_first = blockIdx.x * Tile::kTokens;
    const std::uint32_t n_rows = min(Tile::kTokens, arguments.n_tokens - token_first);
    constexpr std::uint32_t kElementBytes = Tile::kIsF32 ? 4 : 2;
    TileSource source{};
    source.input = static_cast<const unsigned char*>(arguments.input) +
                   std::uint64_t{group} * arguments.n_in * kElementBytes;
    source.input_stride = arguments.input_stride;
    source.n_in = arguments.n_in;
    source.weights[0] = arguments.weights;
    source.row_first = row_first;
    source.row_end = (group + 1) * arguments.group_rows;
    TileSums<Tile> sums;
    multiply_tile<Tile>(
        source, n_rows,
        [&](std::uint32_t row) { return static_cast<std::int32_t>(token_first + row); }, sums);
    allow_next_kernel();

    with_output_kind(arguments.output, [&]<ElementType kType, bool kAccumulate>() {
        for_each_pair<Tile, Tile::kAcross>([&](std::uint32_t row, std::uint32_t column,
                                               std::uint32_t f, std::uint32_t n, std::uint32_t i) {
            const std::uint32_t weight_row = row_first + column;
            if (row < n_rows && weight_row < source.row_end)
                store_pair<kType, kAccumulate>(arguments.output, token_first + row, weight_row,
                                               weight_row + 1 < source.row_end, sums[f][n][i],
                                               sums[f][n][i + 1]);
        });
    });
}

}  // namespace plimsoll::kernels::cuda
