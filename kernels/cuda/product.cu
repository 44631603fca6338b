#include "kernels/cuda/precise_product.cuh"
#include "kernels/cuda/product_kernel.cuh"

namespace plimsoll::kernels::cuda {
namespace {

using LaunchTile = void (*)(const ProductArguments& arguments, std::uint32_t n_groups,
                            const Launch& launch);

template <class Tile>
void launch_tile(const ProductArguments& arguments, std::uint32_t n_groups, const Launch& launch) {
    ProductArguments tiled = arguments;
    tiled.group_tiles = ceil_div(arguments.group_rows, Tile::kOutputs);
    const dim3 grid(ceil_div(arguments.n_tokens, Tile::kTokens), n_groups * tiled.group_tiles);
    launch_kernel(product_kernel<Tile>, {grid, dim3(Tile::kThreads), Tile::kSharedBytes}, launch,
                  tiled);
}

/// Tiles of 128, 64 and 32 tokens by 128 columns. The largest has four warps of 64 x 64 and 128
/// sums a thread, two blocks a multiprocessor; shared memory stays below the 99 KB of small chips.
template <WeightType kType>
using LargeTile = ProductTile<
    kType, ElementType::f16, 128, 128, 2, 2, false, 8,
    kType == WeightType::q8_0 || kType == WeightType::q2_k || kType == WeightType::iq2_xxs ? 4 : 3,
    2>;
template <WeightType kType>
using MediumTile = ProductTile<kType, ElementType::f16, 64, 128, 1, 4, false, 8, 3, 2>;
template <WeightType kType>
using SmallTile = ProductTile<kType, ElementType::f16, 32, 128, 1, 4, false, 2, 4, 2>;
/// float32 inputs take two instructions a weight; warps of 32 x 64 split each of them twice.
using SplitTile = ProductTile<WeightType::f16, ElementType::f32, 64, 128, 2, 2, false, 4, 2, 2>;
using SmallSplitTile =
    ProductTile<WeightType::f16, ElementType::f32, 32, 128, 1, 4, false, 4, 3, 2>;

struct TileRow {
    WeightType type;
    ElementType input;
    LaunchTile large;   // 128 tokens
    LaunchTile medium;  // 64
    LaunchTile small;   // 32
};
template <WeightType kType>
constexpr TileRow f16_row() {
    return {kType, ElementType::f16, launch_tile<LargeTile<kType>>, launch_tile<MediumTile<kType>>,
            launch_tile<SmallTile<kType>>};
}
constexpr TileRow kTiles[] = {
    f16_row<WeightType::f32>(),
    f16_row<WeightType::f16>(),
    f16_row<WeightType::bf16>(),
    f16_row<WeightType::q8_0>(),
    f16_row<WeightType::q2_k>(),
    f16_row<WeightType::q4_k>(),
    f16_row<WeightType::iq2_xxs>(),
    {WeightType::f16, ElementType::f32, launch_tile<SplitTile>, launch_tile<SplitTile>,
     launch_tile<SmallSplitTile>},
};

/// The row of the table, or null: float32 inputs with weights that have no float16 of their own.
const TileRow* find_tiles(WeightType type, ElementType input) {
    for (const TileRow& row : kTiles)
        if (row.type == type && row.input == input) return &row;
    return nullptr;
}

/// The largest tile that leaves no multiprocessor without one.
LaunchTile choose_tile(const TileRow& row, const ProductArguments& arguments,
                       std::uint32_t n_groups, const Launch& launch) {
    if (arguments.n_tokens <= 32) return row.small;
    const std::uint32_t columns = n_groups * ceil_div(arguments.group_rows, 128u);
    const bool fills = ceil_div(arguments.n_tokens, 128u) * columns >= launch.n_multiprocessors;
    return arguments.n_tokens > 64 && fills ? row.large : row.medium;
}

void check_shapes(const ProductParams& params) {
    const WeightMatrix& weight = params.weight;
    PLIMSOLL_KERNEL_CHECK(params.n_groups > 0 && weight.n_out % params.n_groups == 0,
                          "groups have equal rows");
    PLIMSOLL_KERNEL_CHECK(weight.n_in % info_of(weight.type).block_elements == 0,
                          "weight rows are whole blocks");
    PLIMSOLL_KERNEL_CHECK(weight.n_in % 8 == 0, "weight rows are aligned to 16 bytes");
    PLIMSOLL_KERNEL_CHECK(params.output_stride == 0 || params.output_stride >= weight.n_out,
                          "output rows overlap");
    PLIMSOLL_KERNEL_CHECK(!params.accumulate || params.output_type == ElementType::f32,
                          "only float32 is added to");
    PLIMSOLL_KERNEL_CHECK(
        params.arithmetic == Arithmetic::fast || params.input_type == ElementType::f32,
        "precise products read float32");
}

}  // namespace

void product(const ProductParams& params, const Launch& launch) {
    check_shapes(params);
    if (params.n_tokens == 0) return;
    const bool fast = params.arithmetic == Arithmetic::fast;
    WeightMatrix weight = params.weight;
    if (fast && params.fp16_weight != nullptr) {
        weight.data = params.fp16_weight;
        weight.type = WeightType::f16;
    }
    ProductArguments arguments{};
    arguments.input = params.input;
    arguments.input_stride = std::uint64_t{params.n_groups} * weight.n_in;
    arguments.weights = planes_of(weight);
    arguments.n_in = weight.n_in;
    arguments.group_rows = weight.n_out / params.n_groups;
    arguments.n_tokens = params.n_tokens;
    arguments.output = {params.output,
                        params.output_stride != 0 ? params.output_stride : weight.n_out,
                        params.output_type, params.accumulate};
    const TileRow* tiles = fast ? find_tiles(weight.type, params.input_type) : nullptr;
    if (tiles != nullptr)
        choose_tile(*tiles, arguments, params.n_groups, launch)(arguments, params.n_groups, launch);
    else
        launch_precise_product(weight.type, arguments, params.n_groups, launch);
}

}  // namespace plimsoll::kernels::cuda
