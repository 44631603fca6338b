#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/leaf.hpp"

namespace plimsoll::kernels::cpu {

/// 1 / sqrt(mean(x^2) + epsilon), the sum and the root in double.
[[nodiscard]] inline float inverse_rms(const float* x, std::uint32_t n, float epsilon) {
    const double mean = leaf().sum_squares(x, n) / static_cast<double>(n);
    return static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
}

/// One row of rms_norm; `weight` may be null, `out` may be `x`.
inline void rms_row(const float* x, const float* weight, std::uint32_t n, float epsilon,
                    float* out) {
    const float scale = inverse_rms(x, n, epsilon);
    if (weight == nullptr) {
        for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * scale;
        return;
    }
    for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

}  // namespace plimsoll::kernels::cpu
