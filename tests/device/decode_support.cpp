#include "tests/device/decode_support.hpp"

namespace plimsoll::kernels::test {

std::vector<float> cpu_product(const RandomWeight& weight, std::vector<float> x,
                               const float* norm_weight, std::uint32_t n_groups,
                               float rms_epsilon) {
    const auto n = static_cast<std::uint32_t>(x.size());
    if (norm_weight != nullptr)
        cpu::rms_norm({x.data(), norm_weight, x.data(), 1, n, rms_epsilon}, Workers(1));
    const ActivationFormat format = activation_format(weight.matrix.type, ActivationMode::fast);
    std::vector<std::byte> input(activation_row_bytes(format, n));
    if (format == ActivationFormat::f32)
        std::memcpy(input.data(), x.data(), input.size());
    else
        cpu::quantize_activations({x.data(), input.data(), 1, n, format}, Workers(1));
    std::vector<float> y(weight.matrix.n_out);
    cpu::matmul({.weight = weight.matrix,
                 .input = input.data(),
                 .output = y.data(),
                 .output_stride = 0,
                 .n_tokens = 1,
                 .n_groups = n_groups,
                 .input_format = format},
                Workers(1));
    return y;
}

namespace {

constexpr float kEpsilon = 1e-6f;
constexpr std::uint32_t kSinkhornIterations = 20;

std::uint32_t mix_rows(std::uint32_t n_streams) { return n_streams * (n_streams + 2); }

}  // namespace

HcSite::HcSite(Random& random, WeightType fn_type, std::uint32_t n_streams,
               std::vector<float> of_streams)
    : streams(std::move(of_streams)),
      mixed(streams.size() / n_streams),
      coefficients(n_streams * (n_streams + 1)),
      device_mixed(mixed.size()),
      n_streams_(n_streams),
      hidden_(static_cast<std::uint32_t>(mixed.size())),
      fn_(random, fn_type, n_streams * hidden_, mix_rows(n_streams)),
      base_(uniform_values(random, mix_rows(n_streams), 0.5f)),
      scale_(uniform_values(random, 3)),
      norm_(uniform_values(random, hidden_)),
      device_fn_(fn_),
      device_base_(base_),
      device_scale_(scale_),
      device_norm_(norm_),
      device_streams_(streams),
      device_coefficients_(coefficients.size()),
      device_sums_(cuda::decode_hc_sums_bytes(n_streams) / sizeof(float)) {}

void HcSite::mix_on_host() {
    streams = device_streams_.download();
    cpu::hc_mix({.fn = fn_.matrix,
                 .base = base_.data(),
                 .scale = scale_.data(),
                 .norm_weight = norm_.data(),
                 .streams = streams.data(),
                 .mixed = mixed.data(),
                 .coefficients = coefficients.data(),
                 .n_tokens = 1,
                 .n_streams = n_streams_,
                 .hidden = hidden_,
                 .sinkhorn_iterations = kSinkhornIterations,
                 .rms_epsilon = kEpsilon,
                 .hc_epsilon = kEpsilon},
                Workers(1));
}

void HcSite::merge_on_host(const std::vector<float>& sublayer_out) {
    cpu::hc_merge(
        {coefficients.data(), sublayer_out.data(), streams.data(), 1, n_streams_, hidden_},
        Workers(1));
}

cuda::DecodeMix HcSite::mix() const {
    return {.sums = device_sums_.data(),
            .base = device_base_.data(),
            .scale = device_scale_.data(),
            .norm_weight = device_norm_.data(),
            .streams = device_streams_.data(),
            .mixed = device_mixed.data(),
            .coefficients = device_coefficients_.data(),
            .n_streams = n_streams_,
            .hidden = hidden_,
            .sinkhorn_iterations = kSinkhornIterations,
            .rms_epsilon = kEpsilon,
            .hc_epsilon = kEpsilon};
}

cuda::DecodeMerge HcSite::merge() const {
    return {.coefficients = device_coefficients_.data(),
            .streams = device_streams_.data(),
            .fn = device_fn_.matrix(),
            .sums = device_sums_.data(),
            .n_streams = n_streams_};
}

void HcSite::start(DeviceStep& step) const {
    cuda::DecodeMerge sums = merge();
    sums.coefficients = nullptr;
    cuda::decode_hc_start(sums, step.launch());
    step.wait();
}

void HcSite::expect_mixed(const Limits& limits, const std::string& what) const {
    expect_close(device_mixed.download(), mixed, limits, what + ", mixed");
    expect_close(device_coefficients_.download(), coefficients, limits, what + ", coefficients");
    EXPECT_TRUE(device_mixed.guard_intact() && device_coefficients_.guard_intact()) << what;
}

void HcSite::expect_merged(const Limits& limits, const std::string& what) const {
    expect_close(device_streams_.download(), streams, limits, what + ", streams");
    EXPECT_TRUE(device_streams_.guard_intact() && device_sums_.guard_intact()) << what;
}

}  // namespace plimsoll::kernels::test
