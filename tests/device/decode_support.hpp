#pragma once

#include "kernels/cuda/decode.hpp"
#include "tests/device/support.hpp"

/// What tests of the decode step's fused launches share.
namespace plimsoll::kernels::test {

/// y of the CPU: the input normed where there is a weight, quantised for quantised weights.
[[nodiscard]] std::vector<float> cpu_product(const RandomWeight& weight, std::vector<float> x,
                                             const float* norm_weight, std::uint32_t n_groups,
                                             float rms_epsilon);

/// A token's streams and a site's weights of the hyper-connection, on both sides.
class HcSite {
public:
    HcSite(Random& random, WeightType fn_type, std::uint32_t n_streams, std::vector<float> streams);

    /// The device's streams and coefficients are what they are; the host's become the same, and
    /// `mixed` and `coefficients` what the CPU makes of these streams.
    void mix_on_host();
    /// The CPU's merge of a sub-layer's output into `streams`, by `coefficients`.
    void merge_on_host(const std::vector<float>& sublayer_out);

    [[nodiscard]] cuda::DecodeMix mix() const;
    [[nodiscard]] cuda::DecodeMerge merge() const;
    /// Sums over the streams as they are.
    void start(DeviceStep& step) const;

    /// What the device has made of mix() and merge().
    void expect_mixed(const Limits& limits, const std::string& what) const;
    void expect_merged(const Limits& limits, const std::string& what) const;

    std::vector<float> streams, mixed, coefficients;  // the host's
    DeviceArray<float> device_mixed;

private:
    std::uint32_t n_streams_, hidden_;
    RandomWeight fn_;
    std::vector<float> base_, scale_, norm_;
    DeviceWeight device_fn_;
    DeviceArray<float> device_base_, device_scale_, device_norm_, device_streams_,
        device_coefficients_, device_sums_;
};

}  // namespace plimsoll::kernels::test
