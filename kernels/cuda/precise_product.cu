#include "kernels/cuda/precise_product.cuh"
#include "kernels/cuda/precise_tile.cuh"

namespace plimsoll::kernels::cuda {
namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    precise_product_kernel(const ProductArguments arguments) {
    wait_for_previous_kernel();
    const std::uint32_t group = blockIdx.y / arguments.group_tiles;
    const std::uint32_t row_first =
        group * arguments.group_rows + blockIdx.y % arguments.group_tiles * Tile::kOutputs;
    const std::uint32_t token_first = blockIdx.x * Tile::kTokens;
    const std::uint32_t n_rows = min(Tile::kTokens, arguments.n_tokens - token_first);
    TileSource source{};
    source.input =
        static_cast<const float*>(arguments.input) + std::uint64_t{group} * arguments.n_in;
    source.input_stride = arguments.input_stride;
    source.n_in = arguments.n_in;
    source.weights[0] = arguments.weights;
    source.row_first = row_first;
    source.row_end = (group + 1) * arguments.group_rows;
    PreciseSums<Tile> sums;
    multiply_precise<Tile>(
        source, n_rows, [&](std::uint32_t row) { return token_first + row; }, sums);
    allow_next_kernel();

    const PrecisePlace<Tile> place;
    with_output_kind(arguments.output, [&]<ElementType kType, bool kAccumulate>() {
#pragma unroll
        for (std::uint32_t m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (std::uint32_t n = 0; n < Tile::kAcross; n += 2) {
                const std::uint32_t column = row_first + place.across * Tile::kAcross + n;
                if (place.row(m) < n_rows && column < source.row_end)
                    store_pair<kType, kAccumulate>(arguments.output, token_first + place.row(m),
                                                   column, column + 1 < source.row_end, sums[m][n],
                                                   sums[m][n + 1]);
            }
    });
}

using LaunchTile = void (*)(const ProductArguments& arguments, std::uint32_t n_groups,
                            const Launch& launch);

template <class Tile>
void launch_tile(const ProductArguments& arguments, std::uint32_t n_groups, const Launch& launch) {
    ProductArguments tiled = arguments;
    tiled.group_tiles = ceil_div(arguments.group_rows, Tile::kOutputs);
    const dim3 grid(ceil_div(arguments.n_tokens, Tile::kTokens), n_groups * tiled.group_tiles);
    launch_kernel(precise_product_kernel<Tile>, {grid, dim3(Tile::kThreads)}, launch, tiled);
}

struct PreciseRow {
    WeightType type;
    LaunchTile large;  // 64 tokens
    LaunchTile small;  // 8
};
template <WeightType kType>
constexpr PreciseRow row_of() {
    return {kType, launch_tile<PreciseTile<kType, 64, false>>,
            launch_tile<PreciseTile<kType, 8, false>>};
}
constexpr PreciseRow kPreciseTiles[] = {
    row_of<WeightType::f32>(),     row_of<WeightType::f16>(),  row_of<WeightType::bf16>(),
    row_of<WeightType::q8_0>(),    row_of<WeightType::q2_k>(), row_of<WeightType::q4_k>(),
    row_of<WeightType::iq2_xxs>(),
};

}  // namespace

void launch_precise_product(WeightType type, const ProductArguments& arguments,
                            std::uint32_t n_groups, const Launch& launch) {
    for (const PreciseRow& row : kPreciseTiles)
        if (row.type == type)
            (arguments.n_tokens <= 8 ? row.small : row.large)(arguments, n_groups, launch);
}

}  // namespace plimsoll::kernels::cuda
