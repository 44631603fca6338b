#pragma once

// Weight formats as the tensor-core products read them: tiles of raw planes in shared memory, 16
// weights of a row decoded to float16 in the registers of the thread that multiplies them.
//
// The order of k inside a product is free as long as weights and inputs agree. A step is 64 values
// of k. In it the thread with c = lane % 4 owns 16 weights of the row lane / 4, and the four matrix
// instructions of a step take four of them each, from all four c. So a thread's quants are one
// shared load, and its inputs two: 16 consecutive halves of a row, stored in the order of
// `input_column`. Weights that are halves already keep the instruction's own order and come, like
// their inputs, through load_matrix.

#include "kernels/cuda/iq2_grid.cuh"
#include "kernels/cuda/weight_planes.hpp"

namespace plimsoll::kernels::cuda {

inline constexpr std::uint32_t kStepElements = 64;

/// A type's block, as constants that device code can use.
template <WeightType kType>
struct WeightBlock {
    static constexpr std::uint32_t kElements = info_of(kType).block_elements;
    static constexpr std::uint32_t kQuantsBytes = plane_sizes(kType).quants_bytes;
};

/// A matrix's planes in device memory.
struct WeightPlanes {
    const unsigned char* quants = nullptr;
    const unsigned char* scales = nullptr;
    const unsigned char* tail = nullptr;
};
[[nodiscard]] inline WeightPlanes planes_of(const WeightMatrix& weight) {
    const std::uint64_t n_blocks =
        std::uint64_t{weight.n_in} / info_of(weight.type).block_elements * weight.n_out;
    const PlaneStarts starts = plane_starts(weight.type, n_blocks);
    const auto* data = static_cast<const unsigned char*>(weight.data);
    return {data, data + starts.scales_bytes, data + starts.tail_bytes};
}

/// The planes of a weight tile in shared memory, rows at the format's pitches.
struct TilePlanes {
    const unsigned char* quants;
    const unsigned char* scales;
    const unsigned char* tail;
    const std::uint64_t* grid;  // of IQ2_XXS
};

/// A thread's share of a step: weights 4s..4s+3 meet the inputs in instruction s.
using WeightFragment = std::uint32_t[8];  // pairs of halves

__device__ __forceinline__ __half2 half2_of(std::uint32_t bits) {
    __half2 value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}
__device__ __forceinline__ std::uint32_t bits_of(__half2 value) {
    std::uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}
/// Brought into float16's range; infinities too.
__device__ __forceinline__ float saturate_f16(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
}
template <class T>
__device__ __forceinline__ T shared_value(const unsigned char* from) {
    return *reinterpret_cast<const T*>(from);
}

/// Bytes 0 and 1 of a word (or 2 and 3) as the low bits of two halves with the upper byte `high`:
/// with 0x64, where a half's last bit is worth 1, the byte becomes 1024 + byte.
template <std::uint32_t kHigh>
__device__ __forceinline__ std::uint32_t lower_bytes_as_halves(std::uint32_t word) {
    return __byte_perm(word, kHigh * 0x01010101u, 0x4140);
}
template <std::uint32_t kHigh>
__device__ __forceinline__ std::uint32_t upper_bytes_as_halves(std::uint32_t word) {
    return __byte_perm(word, kHigh * 0x01010101u, 0x4342);
}

/// Four unsigned bytes q to scale * q - min, each exact until the last rounding.
__device__ __forceinline__ void scale_bytes(std::uint32_t bytes, __half2 scale, __half2 minus_min,
                                            std::uint32_t (&out)[8], std::uint32_t at) {
    const __half2 bias = half2_of(0x64006400u);
    out[at] = bits_of(
        __hfma2(__hsub2(half2_of(lower_bytes_as_halves<0x64>(bytes)), bias), scale, minus_min));
    out[at + 1] = bits_of(
        __hfma2(__hsub2(half2_of(upper_bytes_as_halves<0x64>(bytes)), bias), scale, minus_min));
}

/// Two small integers in the low bytes of a pair of halves, times (d, dmin).
__device__ __forceinline__ __half2 scale_and_min(std::uint32_t integers, std::uint32_t d_dmin) {
    return __hmul2(__hsub2(half2_of(integers | 0x64006400u), half2_of(0x64006400u)),
                   half2_of(d_dmin));
}

/// Where a row of 8 chunks of 16 bytes has each, so that eight lanes meet all banks once without
/// padding: rows in turns of 8 for lanes that read one chunk of eight rows (load_matrix), of 2 for
/// those that read every second chunk of two rows (load_sixteen).
template <std::uint32_t kRows>
__device__ __forceinline__ std::uint32_t chunk_position(std::uint32_t row, std::uint32_t chunk) {
    return chunk ^ (row % kRows);
}
/// Thread c's 16 halves of a row so stored.
__device__ __forceinline__ void load_sixteen(const unsigned char* row_start, std::uint32_t row,
                                             std::uint32_t c, std::uint32_t (&out)[8]) {
    const auto low = shared_value<uint4>(row_start + 16 * chunk_position<2>(row, 2 * c));
    const auto high = shared_value<uint4>(row_start + 16 * chunk_position<2>(row, 2 * c + 1));
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

/// How a weight tile looks: `kSteps` steps of k; bytes of a row in each plane, and the distance of
/// rows in shared memory where it is another, chosen so that a warp's loads meet no bank twice.
template <WeightType kType>
struct TileFormat;

template <>
struct TileFormat<WeightType::f16> {
    static constexpr std::uint32_t kSteps = 1;
    static constexpr std::uint32_t kQuantsBytes = 128;
    static constexpr std::uint32_t kQuantsPitch = 128;
    static constexpr bool kIsHalves = true;  // rows stored by chunk_position
    static constexpr std::uint32_t kScalesBytes = 0;
    static constexpr std::uint32_t kTailBytes = 0;

    /// Where in the tile's k the 8 inputs belong that are stored at `chunk` (0 to 7) of a row.
    __device__ static std::uint32_t input_column(std::uint32_t, std::uint32_t chunk) {
        return 8 * chunk;
    }
};
/// Narrowed to float16 on the way into shared memory.
template <>
struct TileFormat<WeightType::bf16> : TileFormat<WeightType::f16> {};
template <>
struct TileFormat<WeightType::f32> : TileFormat<WeightType::f16> {};

template <>
struct TileFormat<WeightType::q8_0> {
    static constexpr std::uint32_t kSteps = 1;
    static constexpr std::uint32_t kQuantsBytes = 64;
    static constexpr std::uint32_t kQuantsPitch = 64;
    static constexpr bool kIsHalves = false;
    static constexpr std::uint32_t kScalesBytes = 4;  // d of two blocks
    static constexpr std::uint32_t kTailBytes = 0;

    __device__ static std::uint32_t input_column(std::uint32_t, std::uint32_t chunk) {
        return 8 * chunk;
    }
    __device__ static void decode(const TilePlanes& tile, std::uint32_t row, std::uint32_t c,
                                  std::uint32_t, std::uint32_t, WeightFragment& out) {
        const auto quants = shared_value<uint4>(tile.quants + row * kQuantsPitch + 16 * c);
        const __half2 d =
            __half2half2(shared_value<__half>(tile.scales + row * kScalesBytes + c / 2 * 2));
        const std::uint32_t words[4] = {quants.x, quants.y, quants.z, quants.w};
        const __half2 bias = half2_of(0x64806480u);  // 1024 + 128: q is made unsigned first
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t bytes = words[i] ^ 0x80808080u;
            const __half2 low = half2_of(lower_bytes_as_halves<0x64>(bytes));
            const __half2 high = half2_of(upper_bytes_as_halves<0x64>(bytes));
            out[2 * i] = bits_of(__hmul2(__hsub2(low, bias), d));
            out[2 * i + 1] = bits_of(__hmul2(__hsub2(high, bias), d));
        }
    }
};

template <>
struct TileFormat<WeightType::q2_k> {
    static constexpr std::uint32_t kSteps = 4;
    static constexpr std::uint32_t kQuantsBytes = 64;
    static constexpr std::uint32_t kQuantsPitch = 64;
    static constexpr bool kIsHalves = false;
    static constexpr std::uint32_t kScalesBytes = 16;
    static constexpr std::uint32_t kTailBytes = 4;

    /// Thread c holds quants 16c..16c+15 of the block: bits 2s, 2s+1 of them are 16 elements in a
    /// row, 128 * (c / 2) + 32 * s + 16 * (c % 2) being the first. Step s takes these.
    __device__ static std::uint32_t input_column(std::uint32_t step, std::uint32_t chunk) {
        return 128 * (chunk / 4) + 32 * step + 8 * (chunk % 4);
    }
    __device__ static void decode(const TilePlanes& tile, std::uint32_t row, std::uint32_t c,
                                  std::uint32_t step, std::uint32_t, WeightFragment& out) {
        const auto quants = shared_value<uint4>(tile.quants + row * kQuantsPitch + 16 * c);
        const std::uint32_t packed =
            tile.scales[row * kScalesBytes + 8 * (c / 2) + 2 * step + c % 2];
        const __half2 both = scale_and_min((packed & 15u) | (packed & 0xf0u) << 12,
                                           shared_value<std::uint32_t>(tile.tail + row * 4));
        const __half2 scale = __low2half2(both);
        const __half2 minus_min = __hneg2(__high2half2(both));
        const std::uint32_t words[4] = {quants.x, quants.y, quants.z, quants.w};
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i)
            scale_bytes((words[i] >> (2 * step)) & 0x03030303u, scale, minus_min, out, 2 * i);
    }
};

template <>
struct TileFormat<WeightType::q4_k> {
    static constexpr std::uint32_t kSteps = 4;
    static constexpr std::uint32_t kQuantsBytes = 128;
    static constexpr std::uint32_t kQuantsPitch = 160;
    static constexpr bool kIsHalves = false;
    static constexpr std::uint32_t kScalesBytes = 16;  // the head
    static constexpr std::uint32_t kTailBytes = 0;

    /// Step s takes 64 elements in a row, whose 4-bit halves are 32 bytes: thread c holds 8 of
    /// these, the low halves 8 elements from 8c on, the high ones 8 from 32 + 8c on.
    __device__ static std::uint32_t input_column(std::uint32_t step, std::uint32_t chunk) {
        return 64 * step + 32 * (chunk % 2) + 8 * (chunk / 2);
    }
    __device__ static void decode(const TilePlanes& tile, std::uint32_t row, std::uint32_t c,
                                  std::uint32_t step, std::uint32_t, WeightFragment& out) {
        const auto quants =
            shared_value<uint2>(tile.quants + row * kQuantsPitch + 32 * step + 8 * c);
        const auto head = shared_value<uint4>(tile.scales + row * kScalesBytes);
        // Scales and mins of the sub-blocks 2 * step and 2 * step + 1, in the two lowest bytes.
        const std::uint32_t shift = 16 * (step % 2);
        const std::uint32_t s0 = head.y >> shift;
        const std::uint32_t s4 = head.z >> shift;
        const std::uint32_t s8 = head.w >> shift;
        const bool first_half = step < 2;
        const std::uint32_t scales =
            first_half ? s0 & 0x3f3fu : (s8 & 0x0f0fu) | ((s0 >> 2) & 0x3030u);
        const std::uint32_t mins =
            first_half ? s4 & 0x3f3fu : ((s8 >> 4) & 0x0f0fu) | ((s4 >> 2) & 0x3030u);
        const __half2 low = scale_and_min(__byte_perm(scales, mins, 0x2420), head.x);
        const __half2 high = scale_and_min(__byte_perm(scales, mins, 0x2521), head.x);
        const __half2 low_min = __hneg2(__high2half2(low));
        const __half2 high_min = __hneg2(__high2half2(high));
        scale_bytes(quants.x & 0x0f0f0f0fu, __low2half2(low), low_min, out, 0);
        scale_bytes(quants.y & 0x0f0f0f0fu, __low2half2(low), low_min, out, 2);
        scale_bytes((quants.x >> 4) & 0x0f0f0f0fu, __low2half2(high), high_min, out, 4);
        scale_bytes((quants.y >> 4) & 0x0f0f0f0fu, __low2half2(high), high_min, out, 6);
    }
};

template <>
struct TileFormat<WeightType::iq2_xxs> {
    static constexpr std::uint32_t kSteps = 4;
    static constexpr std::uint32_t kQuantsBytes = 64;
    static constexpr std::uint32_t kQuantsPitch = 80;
    static constexpr bool kIsHalves = false;
    static constexpr std::uint32_t kScalesBytes = 4;  // d of this block and of its neighbour
    static constexpr std::uint32_t kTailBytes = 0;

    __device__ static std::uint32_t input_column(std::uint32_t step, std::uint32_t chunk) {
        return 64 * step + 8 * chunk;
    }
    /// Eight weights: a grid row of magnitudes v, which with 0x58 above the byte read 128 + v / 8
    /// as halves, exactly; so scale * v / 8 is one multiply-add.
    __device__ static void decode_eight(std::uint64_t magnitudes, std::uint32_t signs,
                                        __half2 scale, __half2 minus_bias, std::uint32_t* out) {
        // Bits 6 and 7 of `signs` at 15 and 31; the pairs below them as many shifts away.
        const std::uint32_t spread = signs * ((1u << 9) + (1u << 24));
        const auto low = static_cast<std::uint32_t>(magnitudes);
        const auto high = static_cast<std::uint32_t>(magnitudes >> 32);
        const std::uint32_t pairs[4] = {
            lower_bytes_as_halves<0x58>(low), upper_bytes_as_halves<0x58>(low),
            lower_bytes_as_halves<0x58>(high), upper_bytes_as_halves<0x58>(high)};
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i)
            out[i] = bits_of(__hfma2(half2_of(pairs[i]), scale, minus_bias)) ^
                     ((spread << (6 - 2 * i)) & 0x80008000u);
    }
    __device__ static void decode(const TilePlanes& tile, std::uint32_t row, std::uint32_t c,
                                  std::uint32_t step, std::uint32_t block, WeightFragment& out) {
        const auto codes =
            shared_value<uint2>(tile.quants + row * kQuantsPitch + 16 * step + c / 2 * 8);
        const __half d = shared_value<__half>(tile.scales + row * kScalesBytes + block % 2 * 2);
        const std::uint32_t indices = codes.x >> (16 * (c % 2));
        const std::uint32_t signs = codes.y >> (14 * (c % 2));
        const std::uint32_t code = codes.y >> 28;
        const std::uint32_t factor = 0x64006400u | (2 * code + 1) * 0x00010001u;
        const __half2 scale =
            __hmul2(__hsub2(half2_of(factor), half2_of(0x64006400u)), __half2half2(d));
        const __half2 minus_bias = __hmul2(scale, half2_of(0xd800d800u));  // -128 * scale
        decode_eight(tile.grid[indices & 255u], iq2_signs(signs & 127u), scale, minus_bias, out);
        decode_eight(tile.grid[(indices >> 8) & 255u], iq2_signs((signs >> 7) & 127u), scale,
                     minus_bias, out + 4);
    }
};

}  // namespace plimsoll::kernels::cuda
