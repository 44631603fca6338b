#pragma once

#include "kernels/cuda/decode_weights.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {

[[nodiscard]] constexpr std::uint32_t ceil_div(std::uint32_t value, std::uint32_t divisor) {
    return (value + divisor - 1) / divisor;
}

/// What a block multiplies, whatever the arithmetic.
struct TileSource {
    const void* input;
    std::uint64_t input_stride;  // elements from a row to the next
    std::uint32_t n_in;
    WeightPlanes weights[2];  // the second only for pairs of matrices
    std::uint32_t row_first;  // weight row of column 0, of each matrix
    std::uint32_t row_end;    // columns from here on are zero
};

/// Where results go. float32 may be added to what is there; float16 saturates.
struct ProductOutput {
    void* data;
    std::uint64_t stride;  // elements
    ElementType type;
    bool accumulate;
};

/// Two neighbouring results of a row, or the first alone.
template <ElementType kType, bool kAccumulate>
__device__ __forceinline__ void store_pair(const ProductOutput& output, std::uint64_t row,
                                           std::uint32_t column, bool both, float first,
                                           float second) {
    const std::uint64_t at = row * output.stride + column;
    const bool together = both && output.stride % 2 == 0;
    if constexpr (kType == ElementType::f16) {
        auto* to = static_cast<__half*>(output.data) + at;
        const __half2 pair = __floats2half2_rn(saturate_f16(first), saturate_f16(second));
        if (together) {
            *reinterpret_cast<__half2*>(to) = pair;
        } else {
            to[0] = __low2half(pair);
            if (both) to[1] = __high2half(pair);
        }
    } else {
        auto* to = static_cast<float*>(output.data) + at;
        if (together) {
            auto* pair = reinterpret_cast<float2*>(to);
            const float2 before = kAccumulate ? *pair : make_float2(0.0f, 0.0f);
            *pair = make_float2(before.x + first, before.y + second);
        } else {
            to[0] = (kAccumulate ? to[0] : 0.0f) + first;
            if (both) to[1] = (kAccumulate ? to[1] : 0.0f) + second;
        }
    }
}
/// store_all.operator()<type, accumulate>(), the branch taken once for all stores of a thread.
template <class StoreAll>
__device__ __forceinline__ void with_output_kind(const ProductOutput& output,
                                                 const StoreAll& store_all) {
    if (output.type == ElementType::f16)
        store_all.template operator()<ElementType::f16, false>();
    else if (output.accumulate)
        store_all.template operator()<ElementType::f32, true>();
    else
        store_all.template operator()<ElementType::f32, false>();
}

/// A product of all tokens of a chunk, by kernels of any tile.
struct ProductArguments {
    const void* input;           // [T, input_stride] in the kernel's input type
    std::uint64_t input_stride;  // n_groups * n_in
    WeightPlanes weights;
    std::uint32_t n_in;
    std::uint32_t group_rows;  // weight rows of a group
    std::uint32_t group_tiles;
    std::uint32_t n_tokens;
    ProductOutput output;
};

}  // namespace plimsoll::kernels::cuda
