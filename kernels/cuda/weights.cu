#include <algorithm>

#include "kernels/cuda/decode_f32.cuh"
#include "kernels/cuda/ops.hpp"

// Weights on their way onto the device, and small conversions. Bound by memory: each byte is read
// and written once.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
/// Blocks that fill the device; larger work is looped over.
constexpr std::uint32_t kBlocksPerMultiprocessor = 8;

Shape shape_of(std::uint64_t n_items, const Launch& launch) {
    const std::uint64_t blocks = (n_items + kThreads - 1) / kThreads;
    const std::uint64_t most = std::uint64_t{launch.n_multiprocessors} * kBlocksPerMultiprocessor;
    return {.grid = {static_cast<std::uint32_t>(std::min(blocks, most)), 1, 1},
            .block = {kThreads, 1, 1}};
}
__device__ __forceinline__ std::uint64_t first_item() {
    return std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::uint64_t item_step() { return std::uint64_t{gridDim.x} * kThreads; }

/// A field of the file's block and where its plane is.
struct Field {
    std::uint32_t offset_bytes;  // in the file's block
    std::uint32_t size_bytes;    // 0: the format has no such plane
    std::uint64_t plane_bytes;
};
struct Repack {
    const unsigned char* file_rows;
    unsigned char* planes;  // of the first block that is copied
    Field fields[3];
    std::uint64_t n_blocks;
    std::uint32_t block_bytes;
};

/// A thread a 2-byte unit of the file, of which every block and field is a multiple: reads are
/// coalesced, writes fall into at most three runs a warp.
__global__ void __launch_bounds__(kThreads) repack_kernel(const Repack args) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint32_t units = args.block_bytes / 2;
    const auto* from = reinterpret_cast<const std::uint16_t*>(args.file_rows);
    for (std::uint64_t item = first_item(); item < args.n_blocks * units; item += item_step()) {
        const std::uint64_t block = item / units;
        const std::uint32_t at = static_cast<std::uint32_t>(item - block * units) * 2;
        for (const Field& field : args.fields)
            if (at - field.offset_bytes < field.size_bytes)
                *reinterpret_cast<std::uint16_t*>(args.planes + field.plane_bytes +
                                                  block * field.size_bytes + at -
                                                  field.offset_bytes) = from[item];
    }
}

struct FileOffsets {
    std::uint32_t quants, scales, tail;
};
FileOffsets file_offsets(WeightType type) {
    switch (type) {
        case WeightType::q8_0:
        case WeightType::iq2_xxs: return {2, 0, 0};
        case WeightType::q2_k: return {16, 0, 80};
        case WeightType::q4_k: return {16, 0, 0};
        default: return {0, 0, 0};
    }
}

/// A thread eight elements.
template <WeightType kType>
__global__ void __launch_bounds__(kThreads)
    dequantize_f16_kernel(const WeightPlanes planes, __half* output, std::uint64_t n_eights) {
    wait_for_previous_kernel();
    allow_next_kernel();
    constexpr std::uint32_t kEightsOfBlock = 32;  // the matrix as one row of blocks of 256
    for (std::uint64_t item = first_item(); item < n_eights; item += item_step()) {
        float values[8];
        decode_eight_f32<kType>(planes, item / kEightsOfBlock, 256,
                                static_cast<std::uint32_t>(item % kEightsOfBlock) * 8, values);
        alignas(16) __half halves[8];
        for (std::uint32_t i = 0; i < 8; ++i) halves[i] = __float2half_rn(values[i]);
        reinterpret_cast<uint4*>(output)[item] = *reinterpret_cast<const uint4*>(halves);
    }
}

__global__ void __launch_bounds__(kThreads)
    to_f16_kernel(const float* input, __half* output, std::uint64_t n) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const std::uint64_t n_fours = n / 4;
    for (std::uint64_t item = first_item(); item < n_fours; item += item_step()) {
        const float4 v = reinterpret_cast<const float4*>(input)[item];
        alignas(8) __half halves[4] = {
            __float2half_rn(saturate_f16(v.x)), __float2half_rn(saturate_f16(v.y)),
            __float2half_rn(saturate_f16(v.z)), __float2half_rn(saturate_f16(v.w))};
        reinterpret_cast<uint2*>(output)[item] = *reinterpret_cast<const uint2*>(halves);
    }
    const std::uint64_t rest = n_fours * 4 + first_item();
    if (rest < n) output[rest] = __float2half_rn(saturate_f16(input[rest]));
}

using DequantizeKernel = void (*)(WeightPlanes, __half*, std::uint64_t);
DequantizeKernel dequantize_kernel(WeightType type) {
    switch (type) {
        case WeightType::f32: return dequantize_f16_kernel<WeightType::f32>;
        case WeightType::f16: return dequantize_f16_kernel<WeightType::f16>;
        case WeightType::bf16: return dequantize_f16_kernel<WeightType::bf16>;
        case WeightType::q8_0: return dequantize_f16_kernel<WeightType::q8_0>;
        case WeightType::q2_k: return dequantize_f16_kernel<WeightType::q2_k>;
        case WeightType::q4_k: return dequantize_f16_kernel<WeightType::q4_k>;
        case WeightType::iq2_xxs: return dequantize_f16_kernel<WeightType::iq2_xxs>;
    }
    return nullptr;
}

}  // namespace

void repack_weights(const RepackParams& params, const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(std::uint64_t{params.row_first} + params.n_rows <= params.n_out,
                          "rows past the matrix's last one");
    const std::uint32_t block_elements = info_of(params.type).block_elements;
    PLIMSOLL_KERNEL_CHECK(params.n_in % block_elements == 0, "weight rows are whole blocks");
    const std::uint64_t row_blocks = params.n_in / block_elements;
    const PlaneSizes sizes = plane_sizes(params.type);
    const PlaneStarts starts = plane_starts(params.type, row_blocks * params.n_out);
    const FileOffsets offsets = file_offsets(params.type);
    const std::uint64_t first_block = row_blocks * params.row_first;
    Repack args{};
    args.file_rows = static_cast<const unsigned char*>(params.file_rows);
    args.planes = static_cast<unsigned char*>(params.planes);
    args.fields[0] = {offsets.quants, sizes.quants_bytes, first_block * sizes.quants_bytes};
    args.fields[1] = {offsets.scales, sizes.scales_bytes,
                      starts.scales_bytes + first_block * sizes.scales_bytes};
    args.fields[2] = {offsets.tail, sizes.tail_bytes,
                      starts.tail_bytes + first_block * sizes.tail_bytes};
    args.n_blocks = row_blocks * params.n_rows;
    args.block_bytes = info_of(params.type).block_bytes;
    launch_kernel(repack_kernel, shape_of(args.n_blocks * (args.block_bytes / 2), launch), launch,
                  args);
}

void dequantize_f16(const DequantizeF16Params& params, const Launch& launch) {
    const WeightMatrix& weight = params.weight;
    PLIMSOLL_KERNEL_CHECK(weight.n_in % info_of(weight.type).block_elements == 0,
                          "weight rows are whole blocks");
    const std::uint64_t n = std::uint64_t{weight.n_in} * weight.n_out;
    PLIMSOLL_KERNEL_CHECK(n % 8 == 0, "elements are a multiple of 8");
    launch_kernel(dequantize_kernel(weight.type), shape_of(n / 8, launch), launch,
                  planes_of(weight), static_cast<__half*>(params.output), n / 8);
}

void to_f16(const ToF16Params& params, const Launch& launch) {
    launch_kernel(to_f16_kernel, shape_of((params.n + 3) / 4, launch), launch, params.input,
                  static_cast<__half*>(params.output), params.n);
}

}  // namespace plimsoll::kernels::cuda
