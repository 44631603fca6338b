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
                                        std::uint64_t position) {
    const std::uint32_t head_dim = args.ring.head_dim;
    for (std::uint32_t c = threadIdx.x; c < head_dim; c += blockDim.x) scratch.row[c] = args.kv[c];
    norm_and_rotate(scratch, args.angles, args.norm_weight, position, head_dim, args.rms_epsilon);
    round_kv_row(scratch.row, head_dim, args.ring.rope_dim, args.ring.format, args.rounding);
    __syncthreads();
    store_kv_row(args.ring, position % args.ring.row_capacity, scratch.row);
}

/// Pooling reads the token from the products' outputs, not from the state, and a thread updates
/// only columns that it alone has pooled: lanes A and B of column c are c and dim + c.
__device__ __forceinline__ void compress_token(const CompressorArgs& args, RowScratch& scratch,
                                               std::uint64_t position) {
    if ((position + 1) % args.ratio == 0) emit_row(args, scratch, position, position / args.ratio);
    const auto in_window = static_cast<std::uint32_t>(position % args.ratio);
    const bool moves_all = args.ratio == kOverlapRatio && in_window + 1 == kOverlapRatio;
    for (std::uint32_t c = threadIdx.x; c < args.dim; c += blockDim.x)
        for (std::uint32_t column = c; column < args.width; column += args.dim) {
            if (!moves_all) {
                update_row(args, position, in_window, column);
                continue;
            }
#pragma unroll
            for (std::uint32_t i = 0; i < kOverlapRatio; ++i)
                update_state(args, position, i, column);
        }
}

__global__ void __launch_bounds__(kCompressorThreads)
    decode_rows_kernel(const OwnRowArgs own, const CompressorArgs rows,
                       const CompressorArgs index_rows, const StepState* state) {
    __shared__ RowScratch scratch;
    // Weights may be fetched before the products' outputs are there.
    const CompressorArgs& compressor = blockIdx.x == 1 ? rows : index_rows;
    const float* norm_weight = blockIdx.x == 0 ? own.norm_weight : compressor.norm_weight;
    if (norm_weight != nullptr && threadIdx.x % 32 == 0 &&
        threadIdx.x < (blockIdx.x == 0 ? own.ring.head_dim : compressor.dim))
        prefetch_l2(norm_weight + threadIdx.x);
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint64_t position = state->position;
    if (blockIdx.x == 0) {
        own_row(own, scratch, position);
    } else if (compressor.g_kv != nullptr) {
        compress_token(compressor, scratch, position);
    }
}

CompressorArgs one_token(CompressorParams params) {
    params.n_tokens = 1;
    return compressor_args(params);
}

}  // namespace

void decode_rows(const DecodeRowsParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.ring.head_dim <= kHeadDimMax, "row is wider than supported");
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
