#include "kernels/cuda/hc_tail.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// The tail of a launch that merges, without one: a token's first streams are what the embedding
// left. 786 KB of fn in float16, once a token.
__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_hc_start_kernel(const __grid_constant__ hc::Merge merge) {
    allow_next_kernel();
    const hc::Tail tail(merge, share_of_rows(merge.hidden, gridDim.x, blockIdx.x), 0);
    tail.ask_for_fn();
    wait_for_previous_kernel();
    tail.ask_for_streams();
    tail.await_copies();
    tail.leave_sums();
}

}  // namespace

void decode_hc_start(const DecodeMerge& params, const Launch& launch) {
    const hc::Merge merge = hc::merge_of(params);
    PLIMSOLL_KERNEL_CHECK(merge.streams != nullptr && merge.coefficients == nullptr,
                          "there are streams, and nothing to merge");
    const std::uint32_t n_blocks = hc::block_count(merge.hidden, launch.n_multiprocessors);
    const std::uint32_t bands = (merge.hidden + 3) / 4;
    launch_kernel(decode_hc_start_kernel,
                  {.grid = {n_blocks, 1, 1},
                   .block = {kStreamThreads, 1, 1},
                   .shared_bytes =
                       hc::TailMemory(merge, (bands + n_blocks - 1) / n_blocks * 4, 0).size_bytes},
                  launch, merge);
}

std::uint64_t decode_hc_sums_bytes(std::uint32_t n_streams) {
    return std::uint64_t{hc::sum_count(n_streams)} * hc::kBlocksMax * sizeof(float);
}

}  // namespace plimsoll::kernels::cuda
