#include "kernels/cuda/expert_kernels.cuh"

namespace plimsoll::kernels::cuda {
namespace {

/// Tiles of routed experts: 64 assignments, of which at a chunk of 2,048 an expert has 48; four
/// warps side by side, so that each weight is decoded by one. Three blocks a multiprocessor.
template <WeightType kType>
using RoutedUpTile =
    ProductTile<kType, ElementType::f16, kExpertTileRows, 128, 1, 4, true, 5, 4, 3>;
template <WeightType kType>
using RoutedDownTile =
    ProductTile<kType, ElementType::f16, kExpertTileRows, 128, 1, 4, false, 5, 4, 3>;
/// The shared expert's, as those of dense products.
template <WeightType kType>
using SharedUpTile = ProductTile<kType, ElementType::f16, 128, 128, 2, 2, true, 8, 3, 2>;

using LaunchTiles = void (*)(const ExpertArguments& arguments, std::uint32_t n_tiles,
                             const Launch& launch);

template <class Tile>
void launch_up(const ExpertArguments& arguments, std::uint32_t n_tiles, const Launch& launch) {
    const dim3 grid(ceil_div(arguments.ff_dim, Tile::kOutputs / 2), n_tiles);
    launch_kernel(expert_up_kernel<Tile>, {grid, dim3(Tile::kThreads), Tile::kSharedBytes}, launch,
                  arguments);
}
template <class Tile>
void launch_down(const ExpertArguments& arguments, std::uint32_t n_tiles, const Launch& launch) {
    const dim3 grid(ceil_div(arguments.hidden, Tile::kOutputs), n_tiles);
    launch_kernel(expert_down_kernel<Tile>, {grid, dim3(Tile::kThreads), Tile::kSharedBytes},
                  launch, arguments);
}
template <class Tile>
void launch_precise_up(const ExpertArguments& arguments, std::uint32_t n_tiles,
                       const Launch& launch) {
    const dim3 grid(ceil_div(arguments.ff_dim, Tile::kOutputs), n_tiles);
    launch_kernel(precise_up_kernel<Tile>, {grid, dim3(Tile::kThreads)}, launch, arguments);
}
template <class Tile>
void launch_precise_down(const ExpertArguments& arguments, std::uint32_t n_tiles,
                         const Launch& launch) {
    const dim3 grid(ceil_div(arguments.hidden, Tile::kOutputs), n_tiles);
    launch_kernel(precise_down_kernel<Tile>, {grid, dim3(Tile::kThreads)}, launch, arguments);
}

struct ExpertRow {
    WeightType type;
    LaunchTiles up;         // tiles of kExpertTileRows
    LaunchTiles shared_up;  // tiles of 128 tokens
    LaunchTiles down;
    LaunchTiles precise_up;  // these of kExpertTileRows too
    LaunchTiles precise_down;
};
template <WeightType kType>
constexpr ExpertRow row_of() {
    return {kType,
            launch_up<RoutedUpTile<kType>>,
            launch_up<SharedUpTile<kType>>,
            launch_down<RoutedDownTile<kType>>,
            launch_precise_up<PreciseTile<kType, kExpertTileRows, true>>,
            launch_precise_down<PreciseTile<kType, kExpertTileRows, false>>};
}
constexpr ExpertRow kExpertKernels[] = {
    row_of<WeightType::f32>(),     row_of<WeightType::f16>(),  row_of<WeightType::bf16>(),
    row_of<WeightType::q8_0>(),    row_of<WeightType::q2_k>(), row_of<WeightType::q4_k>(),
    row_of<WeightType::iq2_xxs>(),
};

const ExpertRow& kernels_of(WeightType type) {
    for (const ExpertRow& row : kExpertKernels)
        if (row.type == type) return row;
    return kExpertKernels[0];
}

/// A token's output: the rows of its assignments added by slot.
__global__ void __launch_bounds__(256)
    combine_kernel(const float* rows, float* output, std::uint32_t n_experts_used,
                   std::uint32_t hidden, bool accumulate) {
    wait_for_previous_kernel();
    const std::uint64_t token = blockIdx.x;
    const auto* token_rows =
        reinterpret_cast<const float4*>(rows + token * n_experts_used * hidden);
    auto* to = reinterpret_cast<float4*>(output + token * hidden);
    for (std::uint32_t i = threadIdx.x; i < hidden / 4; i += blockDim.x) {
        float4 sum = accumulate ? to[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (std::uint32_t slot = 0; slot < n_experts_used; ++slot) {
            const float4 row = token_rows[slot * (hidden / 4) + i];
            sum.x += row.x, sum.y += row.y, sum.z += row.z, sum.w += row.w;
        }
        to[i] = sum;
    }
    allow_next_kernel();
}

std::uint64_t mid_bytes(std::uint64_t n_assignments, std::uint32_t ff_dim, Arithmetic arithmetic) {
    const std::uint64_t bytes = n_assignments * ff_dim * (arithmetic == Arithmetic::fast ? 2 : 4);
    return (bytes + 255) / 256 * 256;  // so that the rows behind it are aligned
}

void check_shapes(const ExpertFfnGpuParams& params) {
    PLIMSOLL_KERNEL_CHECK(params.gate.type == params.up.type, "gate and up share a kernel");
    PLIMSOLL_KERNEL_CHECK(params.gate.n_in == params.hidden, "gate reads the hidden state");
    PLIMSOLL_KERNEL_CHECK(params.gate.n_out == params.ff_dim, "gate gives the inner width");
    PLIMSOLL_KERNEL_CHECK(params.up.n_in == params.hidden, "up reads the hidden state");
    PLIMSOLL_KERNEL_CHECK(params.up.n_out == params.ff_dim, "up gives the inner width");
    PLIMSOLL_KERNEL_CHECK(params.down.n_in == params.ff_dim, "down reads the inner width");
    PLIMSOLL_KERNEL_CHECK(params.down.n_out == params.hidden, "down gives the hidden state");
    PLIMSOLL_KERNEL_CHECK(params.hidden % 8 == 0, "rows are aligned to 16 bytes");
    PLIMSOLL_KERNEL_CHECK(params.ff_dim % 8 == 0, "rows are aligned to 16 bytes");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used > 0, "a token has experts");
}

/// The shared expert: every token's row in order, so its down is a product like any other.
void shared_expert(const ExpertFfnGpuParams& params, const ExpertArguments& arguments,
                   const Launch& launch) {
    const bool fast = params.arithmetic == Arithmetic::fast;
    const ExpertRow& kernels = kernels_of(params.gate.type);
    const bool large = fast && params.n_tokens > kExpertTileRows;
    const std::uint32_t n_tiles = ceil_div(params.n_tokens, large ? 128 : kExpertTileRows);
    (large  ? kernels.shared_up
     : fast ? kernels.up
            : kernels.precise_up)(arguments, n_tiles, launch);
    ProductParams down{};
    down.weight = params.down;
    down.input = arguments.mid;
    down.input_type = fast ? ElementType::f16 : ElementType::f32;
    down.output = params.output;
    down.n_tokens = params.n_tokens;
    down.arithmetic = params.arithmetic;
    down.accumulate = params.accumulate;
    product(down, launch);
}

void routed_experts(const ExpertFfnGpuParams& params, const ExpertArguments& arguments,
                    const Launch& launch) {
    const bool fast = params.arithmetic == Arithmetic::fast;
    const std::uint32_t n_tiles =
        expert_tiles_max(params.n_tokens * params.n_experts_used, params.n_experts);
    const ExpertRow& up_kernels = kernels_of(params.gate.type);
    const ExpertRow& down_kernels = kernels_of(params.down.type);
    (fast ? up_kernels.up : up_kernels.precise_up)(arguments, n_tiles, launch);
    (fast ? down_kernels.down : down_kernels.precise_down)(arguments, n_tiles, launch);
    launch_kernel(combine_kernel, {dim3(params.n_tokens), dim3(256)}, launch, arguments.rows,
                  params.output, params.n_experts_used, params.hidden, params.accumulate);
}

}  // namespace

std::uint64_t expert_ffn_workspace_bytes(std::uint32_t n_assignments, std::uint32_t hidden,
                                         std::uint32_t ff_dim, bool is_shared,
                                         Arithmetic arithmetic) {
    const std::uint64_t row_bytes = is_shared ? 0 : std::uint64_t{hidden} * sizeof(float);
    return mid_bytes(n_assignments, ff_dim, arithmetic) + n_assignments * row_bytes;
}

void expert_ffn(const ExpertFfnGpuParams& params, const Launch& launch) {
    check_shapes(params);
    if (params.n_tokens == 0) return;
    const bool is_shared = params.expert_offsets == nullptr;
    const std::uint64_t n_assignments =
        std::uint64_t{params.n_tokens} * (is_shared ? 1 : params.n_experts_used);
    auto* workspace = static_cast<unsigned char*>(params.workspace);
    ExpertArguments arguments{};
    arguments.gate = planes_of(params.gate);
    arguments.up = planes_of(params.up);
    arguments.down = planes_of(params.down);
    arguments.expert_stride_bytes = params.expert_stride_bytes;
    arguments.expert_offsets = params.expert_offsets;
    arguments.assignments = params.assignments;
    arguments.tiles = params.tiles;
    arguments.expert_weights = params.expert_weights;
    arguments.input = params.input;
    arguments.mid = workspace;
    arguments.rows = reinterpret_cast<float*>(
        workspace + mid_bytes(n_assignments, params.ff_dim, params.arithmetic));
    arguments.n_experts_used = is_shared ? 1 : params.n_experts_used;
    arguments.n_tokens = params.n_tokens;
    arguments.hidden = params.hidden;
    arguments.ff_dim = params.ff_dim;
    arguments.clamp = params.clamp;
    (is_shared ? shared_expert : routed_experts)(params, arguments, launch);
}

}  // namespace plimsoll::kernels::cuda
