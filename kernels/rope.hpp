#pragma once

#include <cstdint>
#include <span>

namespace plimsoll::kernels {

/// How a layer rotates. Layers without compression: `base` alone, `yarn` false.
struct RopeParams {
    double base = 10000.0;
    std::uint32_t rope_dim = 0;  // even
    bool yarn = false;
    double factor = 16.0;  // the rest only with yarn
    double original_context_tokens = 65536.0;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
};

/// Inverse frequencies of the rope_dim / 2 pairs, in double, with YaRN's interpolation between
/// pairs where `yarn` is set; no magnitude scaling (DeepSeek-V4 applies none). `frequencies` holds
/// rope_dim / 2 values.
void rope_frequencies(const RopeParams& params, std::span<double> frequencies);

/// First and last pair of YaRN's ramp: pairs <= lo keep their frequency, pairs >= hi are divided by
/// factor.
struct YarnRamp {
    std::int32_t lo = 0;
    std::int32_t hi = 0;
};
[[nodiscard]] YarnRamp yarn_ramp(const RopeParams& params);

/// A layer's rotation as ops take it; the frequencies are the caller's and outlive the call.
struct RopeTable {
    const double* frequencies = nullptr;  // [rope_dim / 2] f64, radians per position
    std::uint32_t rope_dim = 0;
};

}  // namespace plimsoll::kernels
