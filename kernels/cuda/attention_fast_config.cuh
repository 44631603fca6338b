#pragma once

#include "kernels/cuda/attention.cuh"

// Shapes of the fast attention of a chunk (attention_fast.cuh), and its queries' way in.

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kFastThreads = 256;

struct FastArgs {
    AttentionRows rows;
    const __half* q;     // [T, n_heads, head_dim], not normed
    const float* sinks;  // [n_heads]
    __half* output;      // [T, n_heads, head_dim]
    RopeAngles angles;
    const StepState* state;
    std::uint32_t n_tokens;
    std::uint32_t n_heads;
    float rms_epsilon;
    float logit_scale;  // log2(e) / sqrt(head_dim): softmax runs on powers of two
    float head_dim_inverse;
};

template <int kHeadDimBound, int kHeadTilesOfWarp, int kRowsOfTile, int kBuffersOfTile>
struct FastConfig {
    static constexpr int kHeadDim = kHeadDimBound;
    static constexpr int kHeadTiles = kHeadTilesOfWarp;  // of 16 heads, a warp's
    static constexpr int kRows = kRowsOfTile;
    static constexpr int kBuffers = kBuffersOfTile;
    static constexpr int kHeads = 2 * 16 * kHeadTiles;
    static constexpr int kSlices = 2 * kHeadTiles;     // of 8 heads, of a head group
    static constexpr int kRowTiles = kRows / 2 / 8;    // a warp's, of its row group
    static constexpr int kColumns = kHeadDim / 4;      // a warp's, of the output
    static constexpr int kColumnTiles = kColumns / 8;  // a warp's
    static constexpr std::uint32_t kRowHalves = kTileRowHalves<kHeadDim>;
    static constexpr std::uint32_t kWeightHalves = kRows + 8;
    using Decoder = TileDecoder<kHeadDim, kRows, static_cast<int>(kFastThreads)>;

    struct Shared {
        alignas(16) __half q[kHeads * kRowHalves];  // and the output at the end
        alignas(16) __half tile[kBuffers][kRows * kRowHalves];
        /// Logits that three warps of a head group send to the one that owns a slice; then that
        /// slice's weights, [8, kWeightHalves] float16, at its start.
        alignas(16) float2 inbox[2 * kSlices][3][kRowTiles][kWarp];
        RowPlace places[kRows];
        float2 rotation[kRopeDimMax / 2];
        float rescale[kHeads];
    };
    static_assert(8 * kWeightHalves * sizeof(__half) <= 3 * kRowTiles * kWarp * sizeof(float2));
};

/// A warp's part of the work.
struct FastWarp {
    std::uint32_t head_group;
    std::uint32_t member;  // of the head group's four: row group and half, slice, column group
    std::uint32_t row;     // of a fragment: lane / 4
    std::uint32_t column;  // of a fragment: 2 * (lane % 4)

    static __device__ __forceinline__ FastWarp own() {
        const std::uint32_t warp = threadIdx.x / kWarp;
        const std::uint32_t lane = threadIdx.x % kWarp;
        return {warp / 4, warp % 4, lane / 4, lane % 4 * 2};
    }
    __device__ __forceinline__ std::uint32_t row_group() const { return member / 2; }
    __device__ __forceinline__ std::uint32_t half() const { return member % 2; }
};

/// A warp's eighth of the block's queries, as loaded: all at once, at the start, when nothing else
/// is in registers.
template <class Config>
struct RawQueries {
    static constexpr int kHeads = Config::kHeads / (kFastThreads / kWarp);
    static constexpr int kParts = Config::kHeadDim > 256 ? 2 : 1;  // of 8 halves a lane
    uint4 part[kHeads][kParts];

    static __device__ __forceinline__ std::uint32_t head(int i) {
        return threadIdx.x / kWarp + i * (kFastThreads / kWarp);
    }
    static __device__ __forceinline__ std::uint32_t element(int p) {
        return (threadIdx.x % kWarp + p * kWarp) * 8;
    }
};

/// Zeros for heads that are not.
template <class Config>
__device__ __forceinline__ void fetch_queries(RawQueries<Config>& raw, const FastArgs& args,
                                              std::uint32_t token, std::uint32_t head_first) {
    const std::uint32_t head_dim = args.rows.head_dim;
#pragma unroll
    for (int i = 0; i < raw.kHeads; ++i) {
        const std::uint32_t head = head_first + raw.head(i);
        const __half* q = args.q + (std::uint64_t{token} * args.n_heads + head) * head_dim;
#pragma unroll
        for (int p = 0; p < raw.kParts; ++p)
            raw.part[i][p] = head < args.n_heads && raw.element(p) < head_dim
                                 ? load_once(q + raw.element(p))
                                 : make_uint4(0, 0, 0, 0);
    }
}

/// Norm, rotation and scale; float16 into shared memory.
template <class Config>
__device__ __forceinline__ void finish_queries(typename Config::Shared& shared,
                                               const RawQueries<Config>& raw,
                                               const FastArgs& args) {
    const std::uint32_t head_dim = args.rows.head_dim;
    const std::uint32_t rope_first = head_dim - 2 * args.angles.n_pairs;
#pragma unroll
    for (int i = 0; i < raw.kHeads; ++i) {
        float2 v[raw.kParts][4];
        float squares = 0.0f;
#pragma unroll
        for (int p = 0; p < raw.kParts; ++p) {
            const uint4& part = raw.part[i][p];
            const std::uint32_t bits[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                v[p][k] = __half22float2(half_pair(bits[k]));
                squares += v[p][k].x * v[p][k].x + v[p][k].y * v[p][k].y;
            }
        }
        const float mean = warp_sum(squares) * args.head_dim_inverse;
        const float scale = args.logit_scale * rsqrtf(mean + args.rms_epsilon);
#pragma unroll
        for (int p = 0; p < raw.kParts; ++p) {
            const std::uint32_t first = raw.element(p);
            const bool turns = first >= rope_first && first < head_dim;
            std::uint32_t bits[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float2 x = make_float2(v[p][k].x * scale, v[p][k].y * scale);
                if (turns) x = rotate(x, shared.rotation[(first - rope_first) / 2 + k]);
                bits[k] = half_bits(x.x, x.y);
            }
            if (first < Config::kHeadDim)
                *reinterpret_cast<uint4*>(shared.q + raw.head(i) * Config::kRowHalves + first) =
                    make_uint4(bits[0], bits[1], bits[2], bits[3]);
        }
    }
}

}  // namespace plimsoll::kernels::cuda
