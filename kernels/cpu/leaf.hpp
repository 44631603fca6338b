#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/types.hpp"

/// The innermost loops, compiled once per instruction set and chosen once per process. Ops call
/// through this table; what is above it is portable code.
namespace plimsoll::kernels::cpu {

/// Weight rows and tokens of one tile: outputs of a tile are 4 KiB, and 128 KiB of inputs (n_in
/// 4096 in 16 bits) stay in a second-level cache while the weight rows pass by once.
inline constexpr std::uint32_t kRowTile = 16;
inline constexpr std::uint32_t kTokenTile = 16;

/// Dot products of weight rows with input rows. Each dot has its own accumulators and runs over the
/// elements in one order, so that its bits do not depend on the other rows and tokens of the tile.
struct DotTile {
    const std::byte* weight;  // first row
    std::uint64_t row_bytes;  // distance of rows
    std::uint32_t n_in;
    std::uint32_t n_rows;       // <= kRowTile
    std::uint32_t n_tokens;     // <= kTokenTile
    const void* const* inputs;  // [n_tokens] rows in the activation format
    float* out;                 // [n_tokens, kRowTile]
};

struct DotKernel {
    WeightType type;
    ActivationFormat format;
    void (*run)(const DotTile& tile);
};

struct Leaf {
    const char* isa_name;
    const DotKernel* dot_kernels;
    std::uint32_t n_dot_kernels;

    /// `n` elements of a weight row from element `first` on, as float32. Both multiples of the
    /// type's block.
    void (*decode)(WeightType type, const std::byte* row, std::uint32_t first, std::uint32_t n,
                   float* out);
    /// out[r] = a . rows[r].
    void (*dot_rows)(const float* a, const float* const* rows, std::uint32_t n_rows,
                     std::uint32_t n, float* out);
    /// y = y * scale + sum_r weights[r] * rows[r], rows in ascending order.
    void (*accumulate_rows)(float* y, float scale, const float* weights, const float* const* rows,
                            std::uint32_t n_rows, std::uint32_t n);
    /// Sum of squares in double.
    double (*sum_squares)(const float* x, std::uint32_t n);
    /// x[i] = exp(x[i]); zero below -87.3, within 2 ulp elsewhere.
    void (*exp)(float* x, std::uint32_t n);
    void (*quantize_q16)(const float* x, std::uint32_t n, ActivationQ16Block* out);
    void (*quantize_q16k)(const float* x, std::uint32_t n, ActivationQ16KBlock* out);
};

/// The table of the best instruction set this processor has.
[[nodiscard]] const Leaf& leaf();

/// The tile function for a weight type and the format its inputs are in; stops where there is none.
[[nodiscard]] void (*find_dot(WeightType type, ActivationFormat format))(const DotTile&);

/// Tables by name ("portable", "avx2", "avx512"), null where this build or processor lacks it. For
/// tests.
[[nodiscard]] const Leaf* find_leaf(const char* isa_name);

const Leaf& leaf_portable();
#if defined(__x86_64__)
const Leaf& leaf_avx2();
const Leaf& leaf_avx512();
#endif

}  // namespace plimsoll::kernels::cpu
