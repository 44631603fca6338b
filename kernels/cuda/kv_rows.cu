#include "kernels/cuda/kv_rows.cuh"
#include "kernels/cuda/ops.hpp"

// Rows of a chunk: rotation, rounding, storing. A block a token or row: a chunk of 2,048 tokens
// moves 4 MB of rows, so these are a few microseconds beside the products and are kept plain.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

struct RopeArgs {
    float* vectors;
    RopeAngles angles;
    const StepState* state;
    std::uint32_t n_heads;
    std::uint32_t head_dim;
    bool inverse;
};

__global__ void __launch_bounds__(kThreads) rope_kernel(const RopeArgs args) {
    __shared__ float2 rotation[kRopeDimMax / 2];
    wait_for_previous_kernel();
    allow_next_kernel();
    fill_rotation(rotation, args.angles, args.state->position + blockIdx.x);
    __syncthreads();
    const std::uint32_t n_pairs = args.angles.n_pairs;
    float* token = args.vectors + std::uint64_t{blockIdx.x} * args.n_heads * args.head_dim +
                   args.head_dim - 2 * n_pairs;
    for (std::uint32_t i = threadIdx.x; i < args.n_heads * n_pairs; i += kThreads) {
        float* pair = token + std::uint64_t{i / n_pairs} * args.head_dim + 2 * (i % n_pairs);
        const float2 v = make_float2(pair[0], pair[1]);
        const float2 by = rotation[i % n_pairs];
        const float2 rotated = args.inverse ? rotate_back(v, by) : rotate(v, by);
        pair[0] = rotated.x;
        pair[1] = rotated.y;
    }
}

struct RoundArgs {
    float* rows;
    std::uint32_t head_dim;
    std::uint32_t rope_dim;
    KvFormat format;
    CacheRounding rounding;
};

__global__ void __launch_bounds__(kThreads) round_kernel(const RoundArgs args) {
    wait_for_previous_kernel();
    allow_next_kernel();
    round_kv_row(args.rows + std::uint64_t{blockIdx.x} * args.head_dim, args.head_dim,
                 args.rope_dim, args.format, args.rounding);
}

struct StoreArgs {
    const float* rows;
    KvRegion region;
    const StepState* state;
    std::uint32_t first_row;  // earlier ones would be overwritten by later ones
};

__global__ void __launch_bounds__(kThreads) store_kernel(const StoreArgs args) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint64_t row = args.first_row + blockIdx.x;
    store_kv_row(args.region, (args.state->position + row) % args.region.row_capacity,
                 args.rows + row * args.region.head_dim);
}

}  // namespace

void rope(const RopeOpParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim <= params.head_dim, "rope dims are part of a head");
    const RopeArgs args{params.vectors, rope_angles(params.rope), launch.state,
                        params.n_heads, params.head_dim,          params.inverse};
    launch_kernel(rope_kernel, Shape{dim3(params.n_tokens), dim3(kThreads)}, launch, args);
}

void round_kv_rows(const RoundKvParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.format == KvFormat::f32 || params.rounding == CacheRounding::on,
                          "packed rows hold only rounded values");
    if (params.rounding == CacheRounding::off) return;
    const RoundArgs args{params.rows, params.head_dim, params.rope_dim, params.format,
                         params.rounding};
    launch_kernel(round_kernel, Shape{dim3(params.n_rows), dim3(kThreads)}, launch, args);
}

void store_kv_rows(const StoreKvParams& params, const Launch& launch) {
    const std::uint32_t capacity = params.region.row_capacity;
    PLIMSOLL_KERNEL_CHECK(capacity > 0, "a ring has rows");
    const std::uint32_t first_row = params.n_rows > capacity ? params.n_rows - capacity : 0;
    const StoreArgs args{params.rows, kv_region(params.region), launch.state, first_row};
    launch_kernel(store_kernel, Shape{dim3(params.n_rows - first_row), dim3(kThreads)}, launch,
                  args);
}

}  // namespace plimsoll::kernels::cuda
