#include "kernels/cuda/decode_experts.cuh"
#include "kernels/cuda/decode_up.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// Bound by the weights' bytes: with six IQ2_XXS experts of 2048 x 4096, 26 MB. The blocks are those
// of decode_products, each with rows of gate and up of one expert.
constexpr std::uint32_t kPartialsMax = 4096;  // of a block, as in decode_products

/// Rows of one slot's expert, which every block finds for itself.
template <class Format>
__device__ void routed_up(const Experts& experts, Routing& routing) {
    const std::uint32_t block = blockIdx.x;
    const std::uint32_t slot = block / experts.n_blocks_per_slot;
    const RowRange rows = share_of_rows(experts.ff_dim, experts.n_blocks_per_slot,
                                        block - slot * experts.n_blocks_per_slot);
    const std::uint32_t warp = threadIdx.x / kWarp;
    if constexpr (Format::kIq2) fill_iq2_tables();
    if (experts.router.bias != nullptr && 16 * threadIdx.x < experts.router.n_experts)
        prefetch_l2(experts.router.bias + 16 * threadIdx.x);
    wait_for_previous_kernel();
    RouterInput router = experts.router;
    if (router.table_row != nullptr)
        router.table_row +=
            static_cast<std::uint64_t>(experts.state->token) * router.n_experts_used;
    score_experts(router, routing);
    __syncthreads();
    if (warp == 0)
        choose_experts(router, routing);
    else
        put_row<Format>(dynamic_shared() + kTablesBytes<Format>, {experts.input, nullptr, 1.0f},
                        experts.hidden, warp - 1, kStreamWarps - 1);
    __syncthreads();
    if (block == 0 && threadIdx.x < router.n_experts_used) {
        experts.expert_ids[threadIdx.x] = routing.ids[threadIdx.x];
        experts.expert_weights[threadIdx.x] = routing.weights[threadIdx.x];
    }
    const auto expert = static_cast<std::uint64_t>(routing.ids[slot]);
    const StreamMemory<Format> memory(experts.hidden, rows.last - rows.first, 2);
    BandStream<Format, GateAndUp> stream(
        {rows.first, rows.last, experts.hidden / Format::kPiece, 2},
        {experts.gate.of(expert), experts.up.of(expert)}, memory.ring_bytes);
    stream.start();
    unsigned char* shared = dynamic_shared();
    auto* partials = reinterpret_cast<float*>(shared + memory.partials_bytes);
    const SharedRow x = shared_row<Format>(shared + memory.row_bytes, experts.hidden);
    stream.run([&](std::uint32_t) { return x; }, partials);
    __syncthreads();
    for (std::uint32_t r = rows.first + threadIdx.x; r < rows.last; r += kStreamThreads)
        experts.mid[std::uint64_t{slot} * experts.ff_dim + r] =
            swiglu(stream.row_sum(partials, 0, r), stream.row_sum(partials, 1, r), experts.clamp) *
            routing.weights[slot];
}

__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_experts_up_kernel(const __grid_constant__ Experts experts) {
    __shared__ Routing routing;
    allow_next_kernel();
    on_format(experts.gate_type,
              [&](auto format) { routed_up<decltype(format)>(experts, routing); });
}

}  // namespace

void decode_experts_up(const DecodeExpertsParams& params, const Launch& launch) {
    check_shapes(params);
    Experts experts = experts_of(params, launch);
    std::uint32_t shared_bytes = 0;
    experts.n_blocks_per_slot =
        blocks_of({params.gate.type, params.hidden, params.ff_dim, 2},
                  static_cast<double>(launch.n_multiprocessors) / params.n_experts_used,
                  kPartialsMax, shared_bytes);
    const std::uint32_t n_blocks = experts.n_blocks_per_slot * params.n_experts_used;
    launch_kernel(
        decode_experts_up_kernel,
        {.grid = {n_blocks, 1, 1}, .block = {kStreamThreads, 1, 1}, .shared_bytes = shared_bytes},
        launch, experts);
}

}  // namespace plimsoll::kernels::cuda
