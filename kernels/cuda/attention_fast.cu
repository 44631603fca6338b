#include <cmath>

#include "kernels/cuda/attention_fast.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {
namespace {

/// A kernel built for heads up to head_dim_max, which needs so much shared memory.
struct FastRow {
    std::uint32_t head_dim_max;
    std::uint32_t shared_bytes;
    std::uint32_t heads;  // a block's
    void (*kernel)(FastArgs);
};

template <int kHeadDim, int kHeadTiles, int kRows, int kBuffers>
constexpr FastRow fast_row() {
    using Config = FastConfig<kHeadDim, kHeadTiles, kRows, kBuffers>;
    return {kHeadDim, sizeof(typename Config::Shared), Config::kHeads,
            attention_fast_kernel<Config>};
}

/// The first row whose bound and memory fit is taken. At head_dim 512 two buffers take 222 KB
/// (sm_90, sm_100), one takes 157 KB (sm_80), and chips with 99 KB get half the heads and rows.
const FastRow kFastRows[] = {
    fast_row<64, 1, 64, 2>(),  fast_row<128, 2, 64, 2>(), fast_row<256, 1, 32, 1>(),
    fast_row<512, 2, 64, 2>(), fast_row<512, 2, 64, 1>(), fast_row<512, 1, 32, 1>(),
};

const FastRow& choose_row(std::uint32_t head_dim) {
    const std::uint32_t shared_max = shared_bytes_max();
    const FastRow* chosen = nullptr;
    for (const FastRow& row : kFastRows)
        if (chosen == nullptr && head_dim <= row.head_dim_max && row.shared_bytes <= shared_max)
            chosen = &row;
    PLIMSOLL_KERNEL_CHECK(chosen != nullptr, "no attention kernel fits this head and chip");
    return *chosen;
}

}  // namespace

void attention_fast(const AttentionFastParams& params, const Launch& launch) {
    const AttentionParams& shape = params.shape;
    PLIMSOLL_KERNEL_CHECK(shape.head_dim % kUnitElements == 0, "heads are whole units of 16");
    PLIMSOLL_KERNEL_CHECK(params.rope.rope_dim % kUnitElements == 0, "so is the rotated tail");
    PLIMSOLL_KERNEL_CHECK(shape.ring.rope_dim % kUnitElements == 0, "and that of the rows");
    FastArgs args{};
    args.rows = attention_rows(shape);
    args.q = static_cast<const __half*>(params.q_f16);
    args.sinks = shape.sinks;
    args.output = static_cast<__half*>(params.output_f16);
    args.angles = rope_angles(params.rope);
    args.state = launch.state;
    args.n_tokens = shape.n_tokens;
    args.n_heads = shape.n_heads;
    args.rms_epsilon = params.rms_epsilon;
    args.logit_scale = kLog2E / std::sqrt(static_cast<float>(shape.head_dim));
    args.head_dim_inverse = 1.0f / static_cast<float>(shape.head_dim);
    const FastRow& row = choose_row(shape.head_dim);
    launch_kernel(row.kernel,
                  Shape{dim3(shape.n_tokens, (shape.n_heads + row.heads - 1) / row.heads),
                        dim3(kFastThreads), row.shared_bytes},
                  launch, args);
}

}  // namespace plimsoll::kernels::cuda
