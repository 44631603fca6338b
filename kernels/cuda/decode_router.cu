#include "kernels/cuda/decode_up.cuh"
#include "kernels/cuda/hc_mix_row.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// Bound by the weights' bytes: 22 MB with a router of float32 for 256 experts and a shared expert
// of Q8_0 of 2048 x 4096. The router's few rows leave most of the chip idle, and what the shared
// expert needs is known as early: so its gate and up go with them, and the launch behind, which
// must wait for the router, has the routed experts alone.
constexpr std::uint32_t kPartialsMax = 4096;  // of a block, as in decode_products

struct Router {
    WeightPlanes router, shared_gate, shared_up;
    WeightType router_type, shared_type;
    hc::Mix mix;
    float* logits;
    float* shared_mid;
    std::uint32_t n_experts;
    std::uint32_t ff_dim;
    std::uint32_t n_router_blocks;
    std::uint32_t n_shared_blocks;
    float clamp;
};

struct RouterPlanes {
    WeightPlanes planes;
    __device__ const WeightPlanes& operator()(std::uint32_t) const { return planes; }
};

/// The products of some rows of n_matrices; then finish(stream, partials, row) for each row.
template <class Format, std::uint32_t kStreams, class Planes, class Finish>
__device__ void stream_rows(const Router& args, const RowRange& rows, std::uint32_t n_matrices,
                            const Planes& planes, hc::MixShared& shared, const Finish& finish) {
    const std::uint32_t hidden = args.mix.params.hidden;
    unsigned char* row_memory = dynamic_shared() + kTablesBytes<Format>;
    {
        const BandShare share{rows.first, rows.last, hidden / Format::kPiece, n_matrices};
        const StreamMemory<Format> memory(hidden, rows.last - rows.first, n_matrices);
        BandStream<Format, Planes> stream(share, planes, memory.ring_bytes);
        stream.start();
        for (std::uint32_t matrix = 0; matrix < n_matrices; ++matrix)
            prefetch_rows<Format>(planes(matrix), hidden, rows.first, rows.last);
        if (threadIdx.x == 0) shared.share = share;
    }
    if constexpr (Format::kIq2) fill_iq2_tables();
    hc::begin_mix(args.mix.params, shared);
    wait_for_previous_kernel();
    hc::put_mixed_row<Format, kStreams>(row_memory, args.mix,
                                        args.n_router_blocks + args.n_shared_blocks, shared);
    const BandShare share = shared.share;
    const StreamMemory<Format> memory(hidden, share.row_last - share.row_first, n_matrices);
    BandStream<Format, Planes> stream(share, planes, memory.ring_bytes);
    stream.resume();
    auto* partials = reinterpret_cast<float*>(dynamic_shared() + memory.partials_bytes);
    __syncthreads();
    const SharedRow x = shared_row<Format>(row_memory, hidden);
    stream.run([&](std::uint32_t) { return x; }, partials);
    __syncthreads();
    for (std::uint32_t row = share.row_first + threadIdx.x; row < share.row_last;
         row += kStreamThreads)
        finish(stream, partials, row);
}

template <class Format, std::uint32_t kStreams>
__device__ void router_rows(const Router& args, hc::MixShared& shared) {
    stream_rows<Format, kStreams>(
        args, share_of_rows(args.n_experts, args.n_router_blocks, blockIdx.x), 1,
        RouterPlanes{args.router}, shared,
        [&](const auto& stream, const float* partials, std::uint32_t row) {
            args.logits[row] = stream.row_sum(partials, 0, row);
        });
}

template <class Format, std::uint32_t kStreams>
__device__ void shared_rows(const Router& args, hc::MixShared& shared) {
    const std::uint32_t block = blockIdx.x - args.n_router_blocks;
    stream_rows<Format, kStreams>(
        args, share_of_rows(args.ff_dim, args.n_shared_blocks, block), 2,
        GateAndUp{args.shared_gate, args.shared_up}, shared,
        [&](const auto& stream, const float* partials, std::uint32_t row) {
            args.shared_mid[row] = swiglu(stream.row_sum(partials, 0, row),
                                          stream.row_sum(partials, 1, row), args.clamp);
        });
}

template <std::uint32_t kStreams>
__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_router_kernel(const __grid_constant__ Router args) {
    __shared__ hc::MixShared shared;
    allow_next_kernel();
    if (blockIdx.x < args.n_router_blocks)
        on_format(args.router_type,
                  [&](auto format) { router_rows<decltype(format), kStreams>(args, shared); });
    else if (blockIdx.x < args.n_router_blocks + args.n_shared_blocks)
        on_format(args.shared_type,
                  [&](auto format) { shared_rows<decltype(format), kStreams>(args, shared); });
    else
        hc::leave_coefficients<kStreams>(args.mix, shared);
}

}  // namespace

void decode_router(const DecodeRouterParams& params, const Launch& launch) {
    const WeightMatrix &router = params.router, &gate = params.shared_gate;
    const std::uint32_t hidden = params.mix.hidden;
    check_matrix(router, hidden, params.n_experts);
    check_matrix(gate, hidden, params.ff_dim);
    check_matrix(params.shared_up, hidden, params.ff_dim);
    PLIMSOLL_KERNEL_CHECK(gate.type == params.shared_up.type, "gate and up have one type");
    Router args{};
    args.router = planes_of(router);
    args.shared_gate = planes_of(gate);
    args.shared_up = planes_of(params.shared_up);
    args.router_type = router.type;
    args.shared_type = gate.type;
    args.mix = hc::mix_of(params.mix, launch);
    args.logits = params.logits;
    args.shared_mid = params.shared_mid;
    args.n_experts = params.n_experts;
    args.ff_dim = params.ff_dim;
    args.clamp = params.clamp;
    const auto router_bytes =
        static_cast<double>(weight_row_bytes(router.type, router.n_in) * router.n_out);
    const auto shared_expert_bytes =
        static_cast<double>(weight_row_bytes(gate.type, gate.n_in) * gate.n_out * 2);
    const double aim =
        static_cast<double>(launch.n_multiprocessors) / (router_bytes + shared_expert_bytes);
    std::uint32_t shared_bytes = 0;
    args.n_router_blocks = blocks_of({router.type, hidden, params.n_experts, 1}, aim * router_bytes,
                                     kPartialsMax, shared_bytes);
    args.n_shared_blocks = blocks_of({gate.type, hidden, params.ff_dim, 2},
                                     aim * shared_expert_bytes, kPartialsMax, shared_bytes);
    launch_kernel(
        params.mix.n_streams == 4 ? decode_router_kernel<4> : decode_router_kernel<kStreamsMax>,
        {.grid = {args.n_router_blocks + args.n_shared_blocks + 1, 1, 1},
         .block = {kStreamThreads, 1, 1},
         .shared_bytes = shared_bytes},
        launch, args);
}

}  // namespace plimsoll::kernels::cuda
