#include "kernels/cuda/hyper_connection.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {
namespace {

// hc_mix is two kernels. The first makes the products z = fn . X, an [n, 16384] x [T, 16384]
// product whose cost is reading X (64 KB a token): a block per token would read fn's 786 KB for
// each from L2, 1.6 GB at T = 2,048, so 16 tokens share it on the tensor cores. The second reads X
// once more, for the sum of squares, the mix and the norm. z lies at the head of the token's output
// row in between, which is written only after it has been read.

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kTokens = 16;  // of a block: rows of a matrix instruction
constexpr std::uint32_t kRowTiles = 3;
constexpr std::uint32_t kRows = 8 * kRowTiles;  // of fn, of a block: 24 is what 4 streams need
constexpr std::uint32_t kStep = 32;             // values of k a warp takes at a time
constexpr std::uint32_t kSplitsMax = 4;         // of k over blocks

struct MixProducts {
    const void* fn;        // [n_rows, n_in]
    const float* streams;  // [T, n_in]
    float* products;       // [T, row_stride]: n_splits partial sums of each row of fn
    std::uint32_t n_rows;
    std::uint32_t n_in;
    std::uint32_t n_tokens;
    std::uint32_t row_stride;
    std::uint32_t n_splits;
};

/// A step's operands of a lane: 8 values of k of two tokens and of a row of each tile of fn.
template <WeightType kType>
struct StepOperands {
    float tokens[2][8];
    EightWeights<kType> weights[kRowTiles];
};

template <WeightType kType>
__device__ __forceinline__ void load_step(StepOperands<kType>& operands, const MixProducts& p,
                                          std::uint32_t token, std::uint32_t row, std::uint32_t k) {
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
        float4 low{}, high{};
        if (token + 8 * i < p.n_tokens && k < p.n_in) {
            const auto* from = reinterpret_cast<const float4*>(
                p.streams + std::uint64_t{token + 8 * i} * p.n_in + k);
            low = from[0];
            high = from[1];
        }
        memcpy(operands.tokens[i], &low, sizeof(low));
        memcpy(operands.tokens[i] + 4, &high, sizeof(high));
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kRowTiles; ++i) {
        operands.weights[i] = EightWeights<kType>{};
        if (row + 8 * i < p.n_rows && k < p.n_in)
            operands.weights[i] = load_eight<kType>(p.fn, std::uint64_t{row + 8 * i} * p.n_in + k);
    }
}

/// The upper 11 bits of a float32's significand, and the rest: together a float32 as two tf32.
__device__ __forceinline__ std::uint32_t upper_part(float x) {
    return __float_as_uint(x) & 0xFFFFE000u;
}
__device__ __forceinline__ std::uint32_t lower_part(float x) {
    return __float_as_uint(x - __uint_as_float(upper_part(x))) & 0xFFFFE000u;
}

/// Tensor cores on tf32 with every float32 as a sum of two: 22 bits, and no float16 range to leave.
/// Weights of 16 bits are one tf32. The tensor core rounds its sums down, so they are emptied into
/// ordinary float32 sums each step.
template <WeightType kType>
__device__ __forceinline__ void multiply_step(const StepOperands<kType>& operands,
                                              float (&sums)[kRowTiles][4]) {
    float upper[kRowTiles][4] = {}, lower[kRowTiles][4] = {};
    float weights[kRowTiles][8];
#pragma unroll
    for (std::uint32_t i = 0; i < kRowTiles; ++i) to_floats<kType>(operands.weights[i], weights[i]);
#pragma unroll
    for (std::uint32_t k = 0; k < 8; k += 2) {
        const float x[4] = {operands.tokens[0][k], operands.tokens[1][k], operands.tokens[0][k + 1],
                            operands.tokens[1][k + 1]};
        const std::uint32_t high[4] = {upper_part(x[0]), upper_part(x[1]), upper_part(x[2]),
                                       upper_part(x[3])};
        const std::uint32_t low[4] = {lower_part(x[0]), lower_part(x[1]), lower_part(x[2]),
                                      lower_part(x[3])};
#pragma unroll
        for (std::uint32_t i = 0; i < kRowTiles; ++i) {
            const std::uint32_t w[2] = {upper_part(weights[i][k]), upper_part(weights[i][k + 1])};
            mma_tf32(upper[i], high, w);
            mma_tf32(lower[i], low, w);
            if constexpr (kType == WeightType::f32) {
                const std::uint32_t rest[2] = {lower_part(weights[i][k]),
                                               lower_part(weights[i][k + 1])};
                mma_tf32(lower[i], high, rest);
            }
        }
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (std::uint32_t e = 0; e < 4; ++e) sums[i][e] += upper[i][e] + lower[i][e];
}

/// Grid: tiles of 16 tokens, splits of k, tiles of 24 rows. Warps take steps of k in turn, so the
/// order of a sum follows from the shape alone. Lane 4g + c has 32 consecutive bytes of token g and
/// 16 of fn's row g: whole sectors, and no shared memory on the way.
template <WeightType kType>
__global__ void __launch_bounds__(kThreads, 2) mix_products(const MixProducts p) {
    __shared__ float partials[kWarps][kTokens][kRows];
    const std::uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::uint32_t g = lane / 4, c = lane % 4;
    const std::uint32_t n_steps = (p.n_in + kStep - 1) / kStep;
    const std::uint32_t split_steps = (n_steps + p.n_splits - 1) / p.n_splits;
    const std::uint32_t first = blockIdx.y * split_steps;
    const std::uint32_t last = min(first + split_steps, n_steps);
    const std::uint32_t token = blockIdx.x * kTokens + g, row = blockIdx.z * kRows + g;
    wait_for_previous_kernel();
    allow_next_kernel();

    float sums[kRowTiles][4] = {};
    StepOperands<kType> now, next;
    load_step(now, p, token, row, (first + warp) * kStep + 8 * c);
    for (std::uint32_t step = first + warp; step < last; step += kWarps) {
        if (step + kWarps < last) load_step(next, p, token, row, (step + kWarps) * kStep + 8 * c);
        multiply_step(now, sums);
        now = next;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (std::uint32_t e = 0; e < 4; ++e)
            partials[warp][g + 8 * (e / 2)][8 * i + 2 * c + e % 2] = sums[i][e];
    __syncthreads();
    for (std::uint32_t at = threadIdx.x; at < kTokens * kRows; at += kThreads) {
        const std::uint32_t t = at / kRows, r = at % kRows;
        float sum = 0.0f;
        for (std::uint32_t w = 0; w < kWarps; ++w) sum += partials[w][t][r];
        const std::uint32_t out_token = blockIdx.x * kTokens + t;
        const std::uint32_t out_row = blockIdx.z * kRows + r;
        if (out_token < p.n_tokens && out_row < p.n_rows)
            p.products[std::uint64_t{out_token} * p.row_stride + blockIdx.y * p.n_rows + out_row] =
                sum;
    }
}

/// The second kernel's parameters, for hc_mix and hc_head alike.
struct TokenMix {
    const float* streams;  // [T, n_streams, hidden]
    const float* base;
    const float* scale;
    const float* norm_weight;
    float* mixed;       // [T, hidden]: n_splits * n_rows products in, the normed mix out
    __half* mixed_f16;  // [T, hidden] or null
    float* coefficients = nullptr;  // [T, n_streams + n_streams^2], or null: hc_head
    std::uint32_t n_streams = 0;
    std::uint32_t hidden = 0;
    std::uint32_t n_rows = 0;
    std::uint32_t n_splits = 0;
    std::uint32_t sinkhorn_iterations = 0;
    float rms_epsilon = 0;
    float hc_epsilon = 0;
    bool keeps_streams = false;  // a token's streams fit in shared memory
};

/// Products to the token's weights: pre into `pre`, post to memory, the logits of comb into
/// `logits`.
template <std::uint32_t kStreams>
__device__ __forceinline__ void finish_products(const TokenMix& p, float product, float scale,
                                                float* post, float* pre, float* logits) {
    const std::uint32_t i = threadIdx.x, n = p.n_streams;
    if (i >= p.n_rows) return;
    const std::uint32_t kind = i < n ? 0 : (i < 2 * n ? 1 : 2);
    const float z = product * scale * p.scale[kind] + p.base[i];
    if (kind == 0)
        pre[i] = sigmoid(z) + p.hc_epsilon;
    else if (kind == 1)
        post[i - n] = 2.0f * sigmoid(z);
    else
        logits[i - 2 * n] = z;
}

template <std::uint32_t kStreams>
__device__ __forceinline__ float4 mixed_column(const float* streams, const float* pre,
                                               std::uint32_t n, std::uint32_t hidden,
                                               std::uint32_t i) {
    float4 sum{};
#pragma unroll
    for (std::uint32_t s = 0; s < kStreams; ++s)
        if (s < n)
            sum = multiply_add(pre[s], *reinterpret_cast<const float4*>(streams + s * hidden + i),
                               sum);
    return sum;
}

/// A block a token. Every thread keeps to its own columns, of all streams, so the streams it has
/// copied to shared memory need no barrier; 64 KB a block, three blocks a multiprocessor.
template <std::uint32_t kStreams>
__global__ void __launch_bounds__(kThreads) mix_tokens(const TokenMix p) {
    __shared__ float partials[2][kWarps];
    __shared__ float pre[kStreamsMax], logits[kStreamsMax * kStreamsMax];
    const std::uint32_t n = p.n_streams, hidden = p.hidden;
    const std::uint64_t token = blockIdx.x;
    const float* streams = p.streams + token * n * hidden;
    float* mixed = p.mixed + token * hidden;
    wait_for_previous_kernel();
    allow_next_kernel();
    if (p.keeps_streams) {
        auto* kept = reinterpret_cast<float*>(dynamic_shared());
        for (std::uint32_t i = 4 * threadIdx.x; i < hidden; i += 4 * kThreads)
            for (std::uint32_t s = 0; s < n; ++s)
                copy_async16(kept + s * hidden + i, streams + s * hidden + i);
        commit_copies();
        streams = kept;
    }
    float product = 0.0f;
    if (threadIdx.x < p.n_rows)
        for (std::uint32_t split = 0; split < p.n_splits; ++split)
            product += mixed[split * p.n_rows + threadIdx.x];
    wait_for_copies<0>();

    float squares = 0.0f;
    for (std::uint32_t i = 4 * threadIdx.x; i < hidden; i += 4 * kThreads)
        for (std::uint32_t s = 0; s < n; ++s)
            squares += squares_of(*reinterpret_cast<const float4*>(streams + s * hidden + i));
    const float scale = inverse_rms(block_total(squares, partials[0]), n * hidden, p.rms_epsilon);
    float* post = p.coefficients + token * (n + n * n);  // not used where it is null
    finish_products<kStreams>(p, product, scale, post, pre, logits);
    __syncthreads();

    squares = 0.0f;
    for (std::uint32_t i = 4 * threadIdx.x; i < hidden; i += 4 * kThreads)
        squares += squares_of(mixed_column<kStreams>(streams, pre, n, hidden, i));
    const float mixed_scale = inverse_rms(block_total(squares, partials[1]), hidden, p.rms_epsilon);
    for (std::uint32_t i = 4 * threadIdx.x; i < hidden; i += 4 * kThreads) {
        const float4 u = mixed_column<kStreams>(streams, pre, n, hidden, i);
        const float4 w = *reinterpret_cast<const float4*>(p.norm_weight + i);
        const float4 out = times(
            make_float4(u.x * mixed_scale, u.y * mixed_scale, u.z * mixed_scale, u.w * mixed_scale),
            w);
        *reinterpret_cast<float4*>(mixed + i) = out;
        if (p.mixed_f16 != nullptr) store_halves(p.mixed_f16 + token * hidden + i, out);
    }
    // Behind everything else: the other blocks of the multiprocessor go on meanwhile.
    if (p.coefficients != nullptr && threadIdx.x >= kThreads - kWarp)
        sinkhorn<kStreams>(logits, n, p.sinkhorn_iterations, p.hc_epsilon, post + n);
}

/// A block takes 1,024 columns of a token: 20 bytes read and 16 written for each of its values of
/// y.
template <std::uint32_t kStreams>
__global__ void __launch_bounds__(kThreads) merge_tokens(const HcMergeParams p) {
    const std::uint32_t n = p.n_streams, hidden = p.hidden;
    const std::uint64_t token = blockIdx.x;
    const std::uint32_t i = 4 * (blockIdx.y * kThreads + threadIdx.x);
    wait_for_previous_kernel();
    allow_next_kernel();
    if (i >= hidden) return;
    const float* post = p.coefficients + token * (n + n * n);
    const float* comb = post + n;
    float* streams = p.streams + token * n * hidden + i;
    const float4 y = *reinterpret_cast<const float4*>(p.sublayer_out + token * hidden + i);
    float4 before[kStreams];
#pragma unroll
    for (std::uint32_t j = 0; j < kStreams; ++j)
        if (j < n) before[j] = *reinterpret_cast<const float4*>(streams + j * hidden);
#pragma unroll
    for (std::uint32_t k = 0; k < kStreams; ++k) {
        if (k >= n) break;
        float4 sum = multiply_add(post[k], y, float4{});
#pragma unroll
        for (std::uint32_t j = 0; j < kStreams; ++j)
            if (j < n) sum = multiply_add(comb[j * n + k], before[j], sum);
        *reinterpret_cast<float4*>(streams + k * hidden) = sum;
    }
}

void launch_products(const WeightMatrix& fn, const MixProducts& p, const Launch& launch) {
    const Shape shape{
        .grid = {(p.n_tokens + kTokens - 1) / kTokens, p.n_splits, (p.n_rows + kRows - 1) / kRows},
        .block = kThreads};
    switch (fn.type) {
        case WeightType::f16:
            launch_kernel(mix_products<WeightType::f16>, shape, launch, p);
            return;
        case WeightType::bf16:
            launch_kernel(mix_products<WeightType::bf16>, shape, launch, p);
            return;
        default:
            PLIMSOLL_KERNEL_CHECK(fn.type == WeightType::f32, "fn is f32, f16 or bf16");
            launch_kernel(mix_products<WeightType::f32>, shape, launch, p);
    }
}

/// Both kernels of hc_mix or hc_head.
void mix(const WeightMatrix& fn, TokenMix tokens, std::uint32_t n_tokens, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(tokens.n_streams > 0 && tokens.n_streams <= kStreamsMax,
                          "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(fn.n_in == tokens.n_streams * tokens.hidden, "fn reads all streams");
    PLIMSOLL_KERNEL_CHECK(tokens.hidden % 8 == 0, "rows are read 8 values at a time");
    PLIMSOLL_KERNEL_CHECK(tokens.hidden >= fn.n_out, "output rows carry the raw products");
    // A function of the shape alone, as is every sum's order.
    const std::uint32_t n_splits = tokens.hidden >= kSplitsMax * fn.n_out ? kSplitsMax : 1;
    tokens.n_rows = fn.n_out;
    tokens.n_splits = n_splits;
    launch_products(fn,
                    {fn.data, tokens.streams, tokens.mixed, fn.n_out, fn.n_in, n_tokens,
                     tokens.hidden, n_splits},
                    launch);
    const std::uint64_t kept_bytes = std::uint64_t{fn.n_in} * sizeof(float);
    tokens.keeps_streams = kept_bytes + 1024 <= shared_bytes_max();
    const Shape shape{
        .grid = n_tokens,
        .block = kThreads,
        .shared_bytes = tokens.keeps_streams ? static_cast<std::uint32_t>(kept_bytes) : 0};
    if (tokens.n_streams == 4)
        launch_kernel(mix_tokens<4>, shape, launch, tokens);
    else
        launch_kernel(mix_tokens<kStreamsMax>, shape, launch, tokens);
}

}  // namespace

void hc_mix(const HcMixParams& params, void* mixed_f16, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.fn.n_out == params.n_streams * (params.n_streams + 2),
                          "fn gives pre, post and comb");
    mix(params.fn,
        {.streams = params.streams,
         .base = params.base,
         .scale = params.scale,
         .norm_weight = params.norm_weight,
         .mixed = params.mixed,
         .mixed_f16 = static_cast<__half*>(mixed_f16),
         .coefficients = params.coefficients,
         .n_streams = params.n_streams,
         .hidden = params.hidden,
         .sinkhorn_iterations = params.sinkhorn_iterations,
         .rms_epsilon = params.rms_epsilon,
         .hc_epsilon = params.hc_epsilon},
        params.n_tokens, launch);
}

void hc_head(const HcHeadParams& params, void* output_f16, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.fn.n_out == params.n_streams, "fn gives one weight a stream");
    mix(params.fn,
        {.streams = params.streams,
         .base = params.base,
         .scale = params.scale,
         .norm_weight = params.norm_weight,
         .mixed = params.output,
         .mixed_f16 = static_cast<__half*>(output_f16),
         .n_streams = params.n_streams,
         .hidden = params.hidden,
         .rms_epsilon = params.rms_epsilon,
         .hc_epsilon = params.hc_epsilon},
        params.n_tokens, launch);
}

void hc_merge(const HcMergeParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(params.n_streams > 0 && params.n_streams <= kStreamsMax,
                          "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(params.hidden % 4 == 0, "rows are read 16 bytes at a time");
    const std::uint32_t columns = 4 * kThreads;
    const Shape shape{.grid = {params.n_tokens, (params.hidden + columns - 1) / columns},
                      .block = kThreads};
    if (params.n_streams == 4)
        launch_kernel(merge_tokens<4>, shape, launch, params);
    else
        launch_kernel(merge_tokens<kStreamsMax>, shape, launch, params);
}

}  // namespace plimsoll::kernels::cuda
