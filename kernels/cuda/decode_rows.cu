#include "kernels/cuda/compressor.cuh"
#include "kernels/cuda/decode.hpp"

// The rows that one token adds, one launch: block 0 its own KV row, blocks 1 and 2 its compressors.
// A row's norm and rounding are over the whole row, so a row stays in one block of 512 threads; the
// three move about 20 KB, and what counts is the chain of latencies: the products' outputs, the
// norm's sum, the store.

namespace plimsoll::kernels::cuda {
namespace {

struct OwnRowArgs {
    const float* kv;
    const float* norm_weight;
    KvRegion ring;
    RopeAngles angles;
    CacheRounding rounding;
    float rms_epsilon;
};

__device__ __forceinline__ void own_row(const OwnRowArgs& args, RowScratch& scratch,
                                        const StepState* state, float norm_weight) {
    const std::uint32_t head_dim = args.ring.head_dim;
    const float value = threadIdx.x < head_dim ? args.kv[threadIdx.x] : 0.0f;
    const std::uint64_t position = state->position;
    norm_and_rotate(scratch, value, args.angles, norm_weight, position, head_dim, args.rms_epsilon);
    round_kv_row(scratch.row, head_dim, args.ring.rope_dim, args.ring.format, args.rounding);
    __syncthreads();
    store_kv_row(args.ring, position % args.ring.row_capacity, scratch.row);
}

/// Pooling reads the token from the products' outputs, not from the state, and a thread updates
/// only columns that it alone has pooled: lanes A and B of column c are c and dim + c.
__device__ __forceinline__ void compress_token(const CompressorArgs& args, RowScratch& scratch,
                                               const StepState* state, float norm_weight) {
    const ChunkSpan span = chunk_span(args, state->position);
    const bool is_finished = span.end_window > span.first_window;
    const std::uint32_t in_window = is_finished ? args.ratio - 1 : span.end_in_window - 1;
    with_ape(args, [&](const auto* ape) {
        if (is_finished) emit_row(args, ape, scratch, span, span.first_window, norm_weight);
        // A finished window moves as a whole; else only the token's own row changes.
        const bool moves = is_finished && args.ratio == kOverlapRatio;
        if (threadIdx.x >= args.dim) return;
        for (std::uint32_t column = threadIdx.x; column < args.width; column += args.dim)
            for (std::uint32_t i = moves ? 0 : in_window; i <= in_window; ++i)
                update_state(args, ape, span, i, column);
    });
}

__global__ void __launch_bounds__(kCompressorThreads, 1)
    decode_rows_kernel(const OwnRowArgs own, const CompressorArgs rows,
                       const CompressorArgs index_rows, const StepState* state) {
    __shared__ RowScratch scratch;
    const CompressorArgs& compressor = blockIdx.x == 1 ? rows : index_rows;
    const bool is_own = blockIdx.x == 0;
    const bool is_absent = !is_own && compressor.g_kv == nullptr;
    // Weights may be fetched before the products' outputs are there.
    const float* norm = is_own ? own.norm_weight : compressor.norm_weight;
    const std::uint32_t dim = is_own ? own.ring.head_dim : compressor.dim;
    const float norm_weight = !is_absent && threadIdx.x < dim ? norm[threadIdx.x] : 0.0f;
    wait_for_previous_kernel();
    allow_next_kernel();
    if (is_own)
        own_row(own, scratch, state, norm_weight);
    else if (!is_absent)
        compress_token(compressor, scratch, state, norm_weight);
}

CompressorArgs one_token(CompressorParams params) {
    params.n_tokens = 1;
    return compressor_args(params);
}

}  // namespace

void decode_rows(const DecodeRowsParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.ring.head_dim <= kHeadDimMax, "row is wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.ring.head_dim % 2 == 0, "rotated pairs are neighbours");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim == params.ring.rope_dim,
                          "the ring's tail is what is rotated");
    const OwnRowArgs own{
        params.kv,       params.kv_norm,    kv_region(params.ring), rope_angles(params.rope),
        params.rounding, params.rms_epsilon};
    const std::uint32_t blocks =
        params.index_rows.g_kv != nullptr ? 3 : (params.rows.g_kv != nullptr ? 2 : 1);
    launch_kernel(decode_rows_kernel, Shape{dim3(blocks), dim3(kCompressorThreads)}, launch, own,
                  one_token(params.rows), one_token(params.index_rows), launch.state);
}

}  // namespace plimsoll::kernels::cuda
