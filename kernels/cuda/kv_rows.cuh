#pragma once

#include "kernels/cuda/intrinsics.cuh"
#include "kernels/kv_rows.hpp"
#include "kernels/ops.hpp"

// Cached rows on the device: their layout, their roundings bit for bit as
// kernels/cache_rounding.cpp makes them, and the rotation. Shared by the kernels that write rows
// and those that attend to them.

namespace plimsoll::kernels::cuda {

// Rotation.

/// Frequencies by value, in half turns per position: the reduction of an angle is then the removal
/// of whole turns, which a double does without error, and sincospif needs no slow path for large
/// arguments.
struct RopeAngles {
    double half_turns[kRopeDimMax / 2];
    std::uint32_t n_pairs;
};

inline RopeAngles rope_angles(const RopeTable& rope) {
    PLIMSOLL_KERNEL_CHECK(rope.rope_dim <= kRopeDimMax, "rope_dim is above the largest supported");
    RopeAngles angles{};
    if (rope.frequencies == nullptr) return angles;
    angles.n_pairs = rope.rope_dim / 2;
    constexpr double kPi = 3.14159265358979323846;
    for (std::uint32_t i = 0; i < angles.n_pairs; ++i)
        angles.half_turns[i] = rope.frequencies[i] / kPi;
    return angles;
}

/// Cosine and sine of a pair's angle at a position: three double operations, all else in float32.
__device__ __forceinline__ float2 rotation_of(const RopeAngles& angles, std::uint32_t pair,
                                              std::uint64_t position) {
    const double half_turns = static_cast<double>(position) * angles.half_turns[pair];
    const double whole_turns = rint(0.5 * half_turns);
    float sine, cosine;
    sincospif(static_cast<float>(fma(-2.0, whole_turns, half_turns)), &sine, &cosine);
    return make_float2(cosine, sine);
}

/// Every pair of one position; threads of the block together, the caller synchronises.
__device__ __forceinline__ void fill_rotation(float2* rotation, const RopeAngles& angles,
                                              std::uint64_t position) {
    for (std::uint32_t pair = threadIdx.x; pair < angles.n_pairs; pair += blockDim.x)
        rotation[pair] = rotation_of(angles, pair, position);
}

__device__ __forceinline__ float2 rotate(float2 v, float2 rotation) {
    return make_float2(v.x * rotation.x - v.y * rotation.y, v.x * rotation.y + v.y * rotation.x);
}
__device__ __forceinline__ float2 rotate_back(float2 v, float2 rotation) {
    return make_float2(v.x * rotation.x + v.y * rotation.y, v.y * rotation.x - v.x * rotation.y);
}

// Rounding.

inline constexpr float kFp8Max = 448.0f;
inline constexpr float kFp4Max = 6.0f;

/// 2^e for e in [-126, 127].
__device__ __forceinline__ float power_of_two_f32(std::int32_t exponent) {
    return __uint_as_float(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Least e with 448 * 2^e >= max(1e-4, amax). 448 is 1.75 * 2^8: amax's own exponent decides, and
/// whether its mantissa is above 1.75.
__device__ __forceinline__ std::int32_t fp8_exponent(float amax) {
    const std::uint32_t bits = __float_as_uint(fmaxf(amax, 1e-4f));
    const std::int32_t above = (bits & 0x7fffffu) > 0x600000u ? 1 : 0;
    return static_cast<std::int32_t>(bits >> 23) - 127 - 8 + above;
}
/// Least e with 6 * 2^e >= max(6 * 2^-126, amax); 6 is 1.5 * 2^2.
__device__ __forceinline__ std::int32_t fp4_exponent(float amax) {
    const std::uint32_t bits = __float_as_uint(fmaxf(amax, 6.0f * 0x1p-126f));
    const std::int32_t above = (bits & 0x7fffffu) > 0x400000u ? 1 : 0;
    return static_cast<std::int32_t>(bits >> 23) - 127 - 2 + above;
}

/// As std::clamp: NaN stays.
__device__ __forceinline__ float clamp_f32(float value, float limit) {
    return value < -limit ? -limit : (value > limit ? limit : value);
}

__device__ __forceinline__ std::uint32_t e4m3_code(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    const std::uint32_t sign = (bits >> 24) & 0x80u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7fu;
    if (magnitude < 0x3c800000u) {
        // Below 2^-6 codes count multiples of 2^-9, the last bit of a float near 2^14.
        const float shifted = __uint_as_float(magnitude) + 0x1p14f;
        return sign | (__float_as_uint(shifted) - 0x46800000u);
    }
    const std::uint32_t odd = (magnitude >> 20) & 1u;
    const std::uint32_t code = (magnitude - (120u << 23) + 0x7ffffu + odd) >> 20;
    return sign | (code < 126u ? code : 126u);
}

__device__ __forceinline__ float e4m3_value(std::uint32_t code) {
    const std::uint32_t exponent = (code >> 3) & 15u;
    const std::uint32_t mantissa = code & 7u;
    float magnitude = exponent != 0 ? __uint_as_float(((exponent + 120u) << 23) | (mantissa << 20))
                                    : static_cast<float>(mantissa) * 0x1p-9f;
    if ((code & 0x7fu) == 0x7fu) magnitude = __uint_as_float(0x7fc00000u);
    return __uint_as_float(__float_as_uint(magnitude) | ((code & 0x80u) << 24));
}

__device__ __forceinline__ std::uint32_t e2m1_code(float value) {
    const float magnitude = fabsf(value);
    // Codes are ordered, so the code is the number of midpoints passed; on one, the even code.
    const std::uint32_t code = (magnitude > 0.25f ? 1u : 0u) + (magnitude >= 0.75f ? 1u : 0u) +
                               (magnitude > 1.25f ? 1u : 0u) + (magnitude >= 1.75f ? 1u : 0u) +
                               (magnitude > 2.5f ? 1u : 0u) + (magnitude >= 3.5f ? 1u : 0u) +
                               (magnitude > 5.0f ? 1u : 0u);
    return code | ((__float_as_uint(value) >> 28) & 8u);
}

__device__ __forceinline__ float e2m1_value(std::uint32_t code) {
    const std::uint32_t magnitude = code & 7u;
    // 0 and 0.5 are what E2M1 has below its normal numbers.
    const float value =
        magnitude < 2
            ? 0.5f * static_cast<float>(magnitude)
            : __uint_as_float((((magnitude >> 1) + 126u) << 23) | ((magnitude & 1u) << 22));
    return (code & 8u) != 0 ? -value : value;
}

/// A warp's block of 64 values, two a lane (2 * lane, 2 * lane + 1), as the cache gives them back.
__device__ __forceinline__ float2 fp8_round_block(float2 v) {
    const std::int32_t exponent = fp8_exponent(warp_max(fmaxf(fabsf(v.x), fabsf(v.y))));
    const float inverse = power_of_two_f32(-exponent);
    const float scale = power_of_two_f32(exponent);
    return make_float2(e4m3_value(e4m3_code(clamp_f32(v.x * inverse, kFp8Max))) * scale,
                       e4m3_value(e4m3_code(clamp_f32(v.y * inverse, kFp8Max))) * scale);
}

/// A warp's block of 32 values, one a lane.
__device__ __forceinline__ float fp4_round_block(float v) {
    const std::int32_t exponent = fp4_exponent(warp_max(fabsf(v)));
    return e2m1_value(e2m1_code(clamp_f32(v * power_of_two_f32(-exponent), kFp4Max))) *
           power_of_two_f32(exponent);
}

// Regions.

/// A region of KV rows with its planes' places worked out.
struct KvRegion {
    unsigned char* base = nullptr;
    PlaneOffsets planes;
    KvFormat format = KvFormat::f32;
    std::uint32_t row_capacity = 0;
    std::uint32_t head_dim = 0;
    std::uint32_t rope_dim = 0;
};

inline KvRegion kv_region(const KvRows& rows) {
    KvRegion region;
    if (rows.base == nullptr) return region;
    PLIMSOLL_KERNEL_CHECK(rows.rope_dim <= rows.head_dim, "rope dims are part of the head");
    region.base = static_cast<unsigned char*>(rows.base);
    region.planes = kv_plane_offsets(rows.row_capacity, rows.head_dim, rows.rope_dim);
    region.format = rows.format;
    region.row_capacity = rows.row_capacity;
    region.head_dim = rows.head_dim;
    region.rope_dim = rows.rope_dim;
    return region;
}

struct IndexerRegion {
    unsigned char* base = nullptr;
    PlaneOffsets planes;
    KvFormat format = KvFormat::f32;
    std::uint32_t dim = 0;
};

inline IndexerRegion indexer_region(const IndexerRows& rows) {
    IndexerRegion region;
    if (rows.base == nullptr) return region;
    region.base = static_cast<unsigned char*>(rows.base);
    region.planes = indexer_plane_offsets(rows.row_capacity, rows.dim);
    region.format = rows.format;
    region.dim = rows.dim;
    return region;
}

/// Where a row lies. `exponents` null: `data` is [head_dim] float32; else E4M3 codes, and `tail`
/// the float16 rope dims. `data` null: no row, to be read as zeros.
struct RowPlace {
    const unsigned char* data = nullptr;
    const unsigned char* exponents = nullptr;
    const unsigned char* tail = nullptr;
};

__device__ __forceinline__ RowPlace row_place(const KvRegion& region, std::uint64_t slot) {
    RowPlace place;
    if (region.format == KvFormat::f32) {
        place.data = region.base + slot * region.head_dim * sizeof(float);
        return place;
    }
    place.data = region.base + slot * region.planes.code_stride_bytes;
    place.exponents =
        region.base + region.planes.exponents_bytes + slot * region.planes.exponent_stride_bytes;
    place.tail = region.base + region.planes.tail_bytes + slot * region.rope_dim * 2;
    return place;
}

__device__ __forceinline__ RowPlace row_place(const float* row) {
    RowPlace place;
    place.data = reinterpret_cast<const unsigned char*>(row);
    return place;
}

/// One element of a row, in float32.
__device__ __forceinline__ float row_element(const RowPlace& place, std::uint32_t n_rounded,
                                             std::uint32_t i) {
    if (place.data == nullptr) return 0.0f;
    if (place.exponents == nullptr) return reinterpret_cast<const float*>(place.data)[i];
    if (i >= n_rounded)
        return __half2float(reinterpret_cast<const __half*>(place.tail)[i - n_rounded]);
    return e4m3_value(place.data[i]) *
           power_of_two_f32(static_cast<std::int32_t>(place.exponents[i / kFp8Block]) - 127);
}

// Whole rows, a block of threads each. Rows are [head_dim] or [dim] in shared or global memory.
// blockDim.x is a multiple of 32; the caller synchronises before, and before the row's next use.

/// Two values of a block of 64, zeros past the end of the rounded dims.
__device__ __forceinline__ float2 load_pair(const float* row, std::uint32_t i, std::uint32_t n) {
    return make_float2(i < n ? row[i] : 0.0f, i + 1 < n ? row[i + 1] : 0.0f);
}

/// round_kv_rows for one row, in place.
__device__ __forceinline__ void round_kv_row(float* row, std::uint32_t head_dim,
                                             std::uint32_t rope_dim, KvFormat format,
                                             CacheRounding rounding) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t n_rounded = head_dim - rope_dim;
    if (rounding == CacheRounding::on)
        for (std::uint32_t first = threadIdx.x / kWarp * kFp8Block; first < n_rounded;
             first += blockDim.x / kWarp * kFp8Block) {
            const std::uint32_t i = first + 2 * lane;
            const float2 v = fp8_round_block(load_pair(row, i, n_rounded));
            if (i < n_rounded) row[i] = v.x;
            if (i + 1 < n_rounded) row[i + 1] = v.y;
        }
    if (format != KvFormat::packed) return;
    for (std::uint32_t i = n_rounded + threadIdx.x; i < head_dim; i += blockDim.x)
        row[i] = __half2float(__float2half_rn(row[i]));
}

/// A row into its slot. Exponents are those of the row as given, as on the CPU: a rounded row may
/// encode with a smaller exponent than the one it was rounded with, and gives the same values.
__device__ __forceinline__ void store_kv_row(const KvRegion& region, std::uint64_t slot,
                                             const float* row) {
    if (region.format == KvFormat::f32) {
        float* out = reinterpret_cast<float*>(region.base) + slot * region.head_dim;
        for (std::uint32_t i = threadIdx.x; i < region.head_dim; i += blockDim.x) out[i] = row[i];
        return;
    }
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t n_rounded = region.head_dim - region.rope_dim;
    unsigned char* codes = region.base + slot * region.planes.code_stride_bytes;
    unsigned char* exponents =
        region.base + region.planes.exponents_bytes + slot * region.planes.exponent_stride_bytes;
    auto* tail =
        reinterpret_cast<__half*>(region.base + region.planes.tail_bytes) + slot * region.rope_dim;
    for (std::uint32_t first = threadIdx.x / kWarp * kFp8Block; first < n_rounded;
         first += blockDim.x / kWarp * kFp8Block) {
        const std::uint32_t i = first + 2 * lane;
        const float2 v = load_pair(row, i, n_rounded);
        const std::int32_t exponent = fp8_exponent(warp_max(fmaxf(fabsf(v.x), fabsf(v.y))));
        const float inverse = power_of_two_f32(-exponent);
        if (lane == 0) exponents[first / kFp8Block] = static_cast<unsigned char>(exponent + 127);
        if (i < n_rounded)
            codes[i] = static_cast<unsigned char>(e4m3_code(clamp_f32(v.x * inverse, kFp8Max)));
        if (i + 1 < n_rounded)
            codes[i + 1] = static_cast<unsigned char>(e4m3_code(clamp_f32(v.y * inverse, kFp8Max)));
    }
    for (std::uint32_t i = threadIdx.x; i < region.rope_dim; i += blockDim.x)
        tail[i] = __float2half_rn(row[n_rounded + i]);
}

/// Hadamard transform of a row in shared memory, in the CPU's order of additions. `scale` is
/// 1/sqrt(dim). Synchronises before and behind.
__device__ __forceinline__ void hadamard_row(float* row, std::uint32_t dim, float scale) {
    for (std::uint32_t stride = 1; stride < dim; stride *= 2) {
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < dim / 2; i += blockDim.x) {
            const std::uint32_t at = i / stride * 2 * stride + i % stride;
            const float a = row[at];
            const float b = row[at + stride];
            row[at] = a + b;
            row[at + stride] = a - b;
        }
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < dim; i += blockDim.x) row[i] *= scale;
    __syncthreads();
}

/// Rounds an indexer row in blocks of 32 where rounding is on, and stores it.
__device__ __forceinline__ void round_and_store_indexer_row(const IndexerRegion& region,
                                                            std::uint64_t row_index,
                                                            const float* row,
                                                            CacheRounding rounding) {
    const std::uint32_t lane = threadIdx.x % kWarp;
    unsigned char* codes = region.base + row_index * region.planes.code_stride_bytes;
    unsigned char* exponents = region.base + region.planes.exponents_bytes +
                               row_index * region.planes.exponent_stride_bytes;
    float* values = reinterpret_cast<float*>(region.base) + row_index * region.dim;
    for (std::uint32_t first = threadIdx.x / kWarp * kFp4Block; first < region.dim;
         first += blockDim.x / kWarp * kFp4Block) {
        const std::uint32_t i = first + lane;
        float v = row[i];
        if (rounding == CacheRounding::on) v = fp4_round_block(v);
        if (region.format == KvFormat::f32) {
            values[i] = v;
            continue;
        }
        const std::int32_t exponent = fp4_exponent(warp_max(fabsf(v)));
        const std::uint32_t code = e2m1_code(clamp_f32(v * power_of_two_f32(-exponent), kFp4Max));
        const std::uint32_t next = __shfl_down_sync(kAllLanes, code, 1);
        if (lane % 2 == 0) codes[i / 2] = static_cast<unsigned char>(code | (next << 4));
        if (lane == 0) exponents[first / kFp4Block] = static_cast<unsigned char>(exponent + 127);
    }
}

/// Sum over the block, the same for every thread and in an order that depends on blockDim alone.
/// `partials` [blockDim.x / 32] shared; synchronises, and once more before it may be used again.
__device__ __forceinline__ float block_sum(float x, float* partials) {
    x = warp_sum(x);
    if (threadIdx.x % kWarp == 0) partials[threadIdx.x / kWarp] = x;
    __syncthreads();
    float sum = 0.0f;
    for (std::uint32_t warp = 0; warp < blockDim.x / kWarp; ++warp) sum += partials[warp];
    return sum;
}

}  // namespace plimsoll::kernels::cuda
