#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/leaf.hpp"
#include "kernels/types.hpp"

namespace plimsoll::kernels::cpu {

/// Splits of work that ops share. They steer speed only: no result depends on them.

/// Weight rows a thread takes at a time: whole tiles, more of them while a range would hold less
/// than about 32k products (a few microseconds, several times the cost of handing it out). With
/// many tokens four tiles, so that inputs fetched for a token tile serve more rows.
[[nodiscard]] inline std::uint64_t rows_per_range(std::uint64_t n_in, std::uint64_t n_tokens) {
    constexpr std::uint64_t kProductsMin = 32768;
    const std::uint64_t tiles = n_tokens > kTokenTile ? 4 : 1;
    const std::uint64_t products = std::max<std::uint64_t>(1, n_in * n_tokens * kRowTile);
    return kRowTile * std::max<std::uint64_t>(tiles, kProductsMin / products);
}

/// Elements of a row-wise op a thread takes at a time, as rows of `dim`.
[[nodiscard]] inline std::uint64_t rows_for_elements(std::uint64_t dim) {
    constexpr std::uint64_t kElementsMin = 4096;
    return std::max<std::uint64_t>(1, kElementsMin / std::max<std::uint64_t>(1, dim));
}

[[nodiscard]] constexpr std::uint64_t ceil_div(std::uint64_t value, std::uint64_t divisor) {
    return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// First byte of a weight row.
[[nodiscard]] inline const std::byte* weight_row(const WeightMatrix& weight, std::uint64_t row) {
    return static_cast<const std::byte*>(weight.data) +
           row * weight_row_bytes(weight.type, weight.n_in);
}

/// One weight row as float32 into `out` [n_in].
inline void decode_row(const WeightMatrix& weight, std::uint64_t row, float* out) {
    leaf().decode(weight.type, weight_row(weight, row), 0, weight.n_in, out);
}

}  // namespace plimsoll::kernels::cpu
