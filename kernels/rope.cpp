#include "kernels/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/check.hpp"

namespace plimsoll::kernels {
namespace {

/// The pair index whose frequency turns `beta` times within the original context (YaRN,
/// find_correction_dim).
double correction_dim(const RopeParams& params, double beta) {
    return params.rope_dim *
           std::log(params.original_context_tokens / (2.0 * std::numbers::pi * beta)) /
           (2.0 * std::log(params.base));
}

}  // namespace

YarnRamp yarn_ramp(const RopeParams& params) {
    const double lo = std::floor(correction_dim(params, params.beta_fast));
    const double hi = std::ceil(correction_dim(params, params.beta_slow));
    const double last = static_cast<double>(params.rope_dim) - 1.0;
    return {static_cast<std::int32_t>(std::max(lo, 0.0)),
            static_cast<std::int32_t>(std::min(hi, last))};
}

void rope_frequencies(const RopeParams& params, std::span<double> frequencies) {
    PLIMSOLL_KERNEL_CHECK(params.rope_dim % 2 == 0, "rope_dim counts pairs");
    PLIMSOLL_KERNEL_CHECK(frequencies.size() == params.rope_dim / 2, "one frequency a pair");
    const YarnRamp ramp = params.yarn ? yarn_ramp(params) : YarnRamp{};
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double pair = static_cast<double>(i);
        const double plain = std::pow(params.base, -2.0 * pair / params.rope_dim);
        if (!params.yarn) {
            frequencies[i] = plain;
            continue;
        }
        const double width = std::max(0.001, static_cast<double>(ramp.hi - ramp.lo));
        const double kept = 1.0 - std::clamp((pair - ramp.lo) / width, 0.0, 1.0);
        frequencies[i] = plain * kept + plain / params.factor * (1.0 - kept);
    }
}

}  // namespace plimsoll::kernels
