#pragma once

// Activation rows on their way into shared memory, as dot_q16.cuh reads them.

#include "kernels/cuda/dot_formats.cuh"
#include "kernels/cuda/reduce.cuh"

namespace plimsoll::kernels::cuda {

/// Where dynamic shared memory begins for others than the tables of IQ2_XXS.
template <class Format>
inline constexpr std::uint32_t kTablesBytes = Format::kIq2 ? sizeof(Iq2Tables) : 0;

/// Byte offsets inside a row's shared memory.
struct SharedRowLayout {
    std::uint32_t low_bytes;
    std::uint32_t scale_bytes;
    std::uint32_t sum_bytes;
    std::uint32_t size_bytes;  // a multiple of 16
};
template <class Format>
__host__ __device__ constexpr SharedRowLayout shared_row_layout(std::uint32_t n) {
    if constexpr (Format::kScaleElements == 0) {
        return {0, 0, 0, n * 4};
    } else {
        const std::uint32_t scales = (n / Format::kScaleElements * 4 + 15) / 16 * 16;
        const std::uint32_t sums = Format::kMins ? n / 16 * 4 : 0;
        return {n, 2 * n, 2 * n + scales, 2 * n + scales + sums};
    }
}

template <class Format>
__device__ __forceinline__ SharedRow shared_row(const unsigned char* shared, std::uint32_t n) {
    const SharedRowLayout layout = shared_row_layout<Format>(n);
    SharedRow row{};
    row.high = reinterpret_cast<const uint4*>(shared);
    row.low = reinterpret_cast<const uint4*>(shared + layout.low_bytes);
    row.scale = reinterpret_cast<const float*>(shared + layout.scale_bytes);
    row.sum = shared + layout.sum_bytes;
    row.values = reinterpret_cast<const float4*>(shared);
    row.n_pieces = n / Format::kPiece;
    return row;
}

/// The input of rows: x, or for a single row x * factor * norm_weight.
struct RowInput {
    const float* x;
    const float* norm_weight;  // or null
    float factor;

    __device__ float4 at(std::uint32_t row, std::uint32_t n, std::uint32_t e) const {
        float4 v = *reinterpret_cast<const float4*>(x + std::uint64_t{row} * n + e);
        if (norm_weight == nullptr) return v;
        const float4 w = *reinterpret_cast<const float4*>(norm_weight + e);
        v.x = v.x * factor * w.x, v.y = v.y * factor * w.y;
        v.z = v.z * factor * w.z, v.w = v.w * factor * w.w;
        return v;
    }
};

/// Added to |x| < 2^22 this leaves the nearest integer, ties to even, in the low bits of the sum.
inline constexpr float kRoundingBias = 12582912.0f;
inline constexpr std::uint32_t kRoundingBits = 0x4b400000u;

/// Quantises eight values of each lane (zeros where the row has ended). The factor is a reciprocal,
/// multiplied and rounded at once: a value may differ by one step of 32,767 from that of
/// quantize_activations. A scale that is not a normal number stands for a block of zeros.
template <class Format>
__device__ void put_eight(unsigned char* shared, const SharedRowLayout& layout, std::uint32_t n,
                          std::uint32_t e, const float (&v)[8]) {
    float largest = 0.0f;
#pragma unroll
    for (std::uint32_t i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
#pragma unroll
    for (std::uint32_t lanes = 1; lanes < Format::kScaleElements / 8; lanes *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, static_cast<int>(lanes)));
    const float d = largest / 32767.0f;
    const float inverse = d >= 1.17549435e-38f ? 1.0f / d : 0.0f;
    std::uint32_t bits[8];
#pragma unroll
    for (std::uint32_t i = 0; i < 8; ++i)
        bits[i] = __float_as_uint(fmaf(v[i], inverse, kRoundingBias));
    std::int32_t sum = 0;
    if constexpr (Format::kMins) {
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i)
            sum += static_cast<std::int32_t>(bits[i] - kRoundingBits);
        sum += __shfl_xor_sync(kAllLanes, sum, 1);
    }
    if (e >= n) return;
    // Bytes 0 and 1 of the sum are those of the 16-bit value: the bias ends in 16 zero bits.
    uint2 low, high;
    low.x = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                        __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
    low.y = __byte_perm(__byte_perm(bits[4], bits[5], 0x0040),
                        __byte_perm(bits[6], bits[7], 0x0040), 0x5410);
    high.x = __byte_perm(__byte_perm(bits[0], bits[1], 0x0051),
                         __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
    high.y = __byte_perm(__byte_perm(bits[4], bits[5], 0x0051),
                         __byte_perm(bits[6], bits[7], 0x0051), 0x5410);
    const Place place = Format::place(e / 16 * 16);
    const std::uint32_t slot = place.part * (n / Format::kPiece) + place.piece;
    *reinterpret_cast<uint2*>(shared + 16 * slot + e % 16) = high;
    *reinterpret_cast<uint2*>(shared + layout.low_bytes + 16 * slot + e % 16) = low;
    if (e % Format::kScaleElements == 0)
        reinterpret_cast<float*>(shared + layout.scale_bytes)[e / Format::kScaleElements] = d;
    if constexpr (Format::kMins)
        if (e % 16 == 0) Format::put_sum(shared + layout.sum_bytes, place, n / Format::kPiece, sum);
}

/// Puts n_rows rows of n activations, one behind the other in device memory, into shared memory, at
/// row_bytes from one another; by warp `warp` of `n_warps` that share the work. The caller's block
/// meets afterwards.
template <class Format>
__device__ void put_rows(unsigned char* shared, std::uint32_t row_bytes, const RowInput& input,
                         std::uint32_t n_rows, std::uint32_t n, std::uint32_t warp,
                         std::uint32_t n_warps) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    if constexpr (Format::kScaleElements == 0) {
        for (std::uint32_t at = 4 * (warp * kWarp + lane); at < n_rows * n;
             at += 4 * n_warps * kWarp) {
            const std::uint32_t row = at / n;
            const Place place = Format::place(at - row * n);
            reinterpret_cast<float4*>(
                shared + row * row_bytes)[place.part * (n / Format::kPiece) + place.piece] =
                input.at(row, n, at - row * n);
        }
    } else {
        // A warp's first two blocks of 256 are read at once: one latency instead of two.
        constexpr std::uint32_t kAtOnce = 2;
        const SharedRowLayout layout = shared_row_layout<Format>(n);
        const std::uint32_t blocks_of_row = (n + 255) / 256;
        const std::uint32_t n_blocks = n_rows * blocks_of_row;
        for (std::uint32_t first = warp; first < n_blocks; first += kAtOnce * n_warps) {
            float4 values[kAtOnce][2] = {};
#pragma unroll
            for (std::uint32_t i = 0; i < kAtOnce; ++i) {
                const std::uint32_t block = first + i * n_warps;
                const std::uint32_t row = block / blocks_of_row;
                const std::uint32_t e = (block - row * blocks_of_row) * 256 + 8 * lane;
                if (block >= n_blocks || e >= n) continue;
                values[i][0] = input.at(row, n, e);
                values[i][1] = input.at(row, n, e + 4);
            }
#pragma unroll
            for (std::uint32_t i = 0; i < kAtOnce; ++i) {
                const std::uint32_t block = first + i * n_warps;
                if (block >= n_blocks) break;
                const std::uint32_t row = block / blocks_of_row;
                const std::uint32_t e = (block - row * blocks_of_row) * 256 + 8 * lane;
                const float4 a = values[i][0], b = values[i][1];
                put_eight<Format>(shared + row * row_bytes, layout, n, e,
                                  {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w});
            }
        }
    }
}
/// The same for one row.
template <class Format>
__device__ void put_row(unsigned char* shared, const RowInput& input, std::uint32_t n,
                        std::uint32_t warp, std::uint32_t n_warps) {
    put_rows<Format>(shared, 0, input, 1, n, warp, n_warps);
}

/// 1 / sqrt(mean(x^2) + epsilon) by the whole block; `partials` [blockDim.x / 32] in shared memory.
__device__ inline float row_inverse_rms(const float* x, std::uint32_t n, float epsilon,
                                        float* partials) {
    float squares = 0.0f;
    for (std::uint32_t e = 4 * threadIdx.x; e < n; e += 4 * blockDim.x)
        squares += squares_of(*reinterpret_cast<const float4*>(x + e));
    return inverse_rms(block_total(squares, partials), n, epsilon);
}

}  // namespace plimsoll::kernels::cuda
