#include <algorithm>

#include "kernels/cuda/decode_experts.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// Bound by the weights' bytes: with six IQ2_XXS experts of 2048 x 4096 and a shared one of Q8_0, 44
// MB. The blocks are those of decode_products, each with rows of gate and up of one expert. Those
// of the shared expert come first: so a multiprocessor's second block is a routed one, and what the
// two wait for differs, memory here and the decoding of IQ2_XXS there.
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kBlocksPerMultiprocessor = 2;
constexpr std::uint32_t kPartialsMax = 4096;  // of a block, as in decode_products

struct GateAndUp {
    WeightPlanes gate, up;
    __device__ const WeightPlanes& operator()(std::uint32_t matrix) const {
        return matrix == 0 ? gate : up;
    }
};

/// Shared memory of a block: tables of IQ2_XXS, the input row, partial sums.
template <class Format>
struct UpMemory {
    std::uint32_t row_bytes;
    std::uint32_t partials_bytes;
    std::uint32_t size_bytes;

    __host__ __device__ UpMemory(std::uint32_t hidden, std::uint32_t rows_max)
        : row_bytes(kTablesBytes<Format>),
          partials_bytes(row_bytes + shared_row_layout<Format>(hidden).size_bytes),
          size_bytes(partials_bytes +
                     partials_of<Format>(rows_max, hidden / Format::kPiece, 2) * 4) {}
};

/// The stream's products, and the inner row of a slot made of them.
template <class Format, class Stream>
__device__ void finish_up(const Experts& experts, Stream& stream, const RowRange& rows,
                          std::uint32_t slot, float weight) {
    unsigned char* shared = dynamic_shared();
    const UpMemory<Format> memory(experts.hidden, rows.last - rows.first);
    auto* partials = reinterpret_cast<float*>(shared + memory.partials_bytes);
    const SharedRow x = shared_row<Format>(shared + memory.row_bytes, experts.hidden);
    stream.run([&](std::uint32_t) { return x; }, partials);
    __syncthreads();
    for (std::uint32_t r = rows.first + threadIdx.x; r < rows.last; r += kThreads) {
        const float gate = fminf(stream.row_sum(partials, 0, r), experts.clamp);
        const float up =
            fminf(fmaxf(stream.row_sum(partials, 1, r), -experts.clamp), experts.clamp);
        experts.mid[std::uint64_t{slot} * experts.ff_dim + r] =
            gate / (1.0f + expf(-gate)) * up * weight;
    }
}

/// Rows of the shared expert: its weights are fetched while the launch before still runs.
template <class Format>
__device__ void shared_up(const Experts& experts) {
    const RowRange rows = share_of_rows(experts.ff_dim, experts.n_shared_blocks, blockIdx.x);
    const std::uint32_t warp = threadIdx.x / kWarp;
    const GateAndUp planes{experts.shared_gate.first, experts.shared_up.first};
    BandStream<Format, GateAndUp> stream(
        {rows.first, rows.last, experts.hidden / Format::kPiece, 2}, planes, warp, kWarps);
    stream.start();
    // While the routed experts are not known, DRAM has no other work than these.
    for (std::uint32_t matrix = 0; matrix < 2; ++matrix)
        prefetch_rows<Format>(planes(matrix), experts.hidden, rows.first, rows.last);
    if constexpr (Format::kIq2) fill_iq2_tables();
    wait_for_previous_kernel();
    put_row<Format>(dynamic_shared() + kTablesBytes<Format>, {experts.input, nullptr, 1.0f},
                    experts.hidden, warp, kWarps);
    __syncthreads();
    finish_up<Format>(experts, stream, rows, experts.router.n_experts_used, 1.0f);
}

/// Rows of one slot's expert, which every block finds for itself.
template <class Format>
__device__ void routed_up(const Experts& experts, Routing& routing) {
    const std::uint32_t block = blockIdx.x - experts.n_shared_blocks;
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
                        experts.hidden, warp - 1, kWarps - 1);
    __syncthreads();
    if (block == 0 && threadIdx.x < router.n_experts_used) {
        experts.expert_ids[threadIdx.x] = routing.ids[threadIdx.x];
        experts.expert_weights[threadIdx.x] = routing.weights[threadIdx.x];
    }
    const auto expert = static_cast<std::uint64_t>(routing.ids[slot]);
    BandStream<Format, GateAndUp> stream(
        {rows.first, rows.last, experts.hidden / Format::kPiece, 2},
        {experts.gate.of(expert), experts.up.of(expert)}, warp, kWarps);
    stream.start();
    finish_up<Format>(experts, stream, rows, slot, routing.weights[slot]);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    decode_experts_up_kernel(const __grid_constant__ Experts experts) {
    __shared__ Routing routing;
    allow_next_kernel();
    const bool is_shared = blockIdx.x < experts.n_shared_blocks;
    on_format(is_shared ? experts.shared_gate_type : experts.gate_type, [&](auto format) {
        using Format = decltype(format);
        if (is_shared)
            shared_up<Format>(experts);
        else
            routed_up<Format>(experts, routing);
    });
}

/// Blocks for one expert's gate and up: in proportion to its share of the bytes, but none empty and
/// none with more partial sums than fit.
std::uint32_t up_blocks(const DecodeExpertsParams& params, WeightType type, double blocks_aim,
                        std::uint32_t& shared_bytes) {
    const std::uint32_t bands = (params.ff_dim + 3) / 4;
    std::uint32_t n_blocks = 0;
    with_format(type, [&](auto format) {
        using Format = decltype(format);
        const std::uint32_t n_pieces = params.hidden / Format::kPiece;
        const std::uint32_t bands_max =
            std::max(1u, kPartialsMax / partials_of<Format>(1, n_pieces, 2));
        n_blocks = std::clamp(static_cast<std::uint32_t>(blocks_aim),
                              (bands + bands_max - 1) / bands_max, bands);
        const std::uint32_t rows_max = (bands + n_blocks - 1) / n_blocks * 4;
        shared_bytes = std::max(shared_bytes, UpMemory<Format>(params.hidden, rows_max).size_bytes);
    });
    return n_blocks;
}

}  // namespace

void decode_experts_up(const DecodeExpertsParams& params, const Launch& launch) {
    check_shapes(params);
    Experts experts = experts_of(params, launch);
    const auto routed_bytes =
        static_cast<double>(weight_row_bytes(params.gate.type, params.hidden));
    const auto shared_expert_bytes =
        static_cast<double>(weight_row_bytes(params.shared_gate.type, params.hidden));
    const double aim = static_cast<double>(launch.n_multiprocessors) * kBlocksPerMultiprocessor /
                       (params.n_experts_used * routed_bytes + shared_expert_bytes);
    std::uint32_t shared_bytes = 0;
    experts.n_shared_blocks =
        up_blocks(params, params.shared_gate.type, aim * shared_expert_bytes, shared_bytes);
    experts.n_blocks_per_slot =
        up_blocks(params, params.gate.type, aim * routed_bytes, shared_bytes);
    const std::uint32_t n_blocks =
        experts.n_shared_blocks + experts.n_blocks_per_slot * params.n_experts_used;
    launch_kernel(
        decode_experts_up_kernel,
        {.grid = {n_blocks, 1, 1}, .block = {kThreads, 1, 1}, .shared_bytes = shared_bytes}, launch,
        experts);
}

}  // namespace plimsoll::kernels::cuda
