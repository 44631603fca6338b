#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct HcShape {
    WeightType type;
    std::uint32_t n_streams, hidden, n_tokens;

    [[nodiscard]] std::string text() const {
        return "fn type " + std::to_string(static_cast<std::uint32_t>(type)) + ", streams " +
               std::to_string(n_streams) + ", hidden " + std::to_string(hidden) + ", tokens " +
               std::to_string(n_tokens);
    }
    [[nodiscard]] std::uint32_t width() const { return n_streams * hidden; }
    [[nodiscard]] std::uint32_t n_mix() const { return n_streams * (n_streams + 2); }
    [[nodiscard]] std::uint32_t n_coefficients() const { return n_streams * (n_streams + 1); }
};

const HcShape kShapes[] = {
    {WeightType::f16, 4, 256, 5},  {WeightType::f32, 4, 96, 17},  {WeightType::bf16, 4, 40, 3},
    {WeightType::f16, 2, 1032, 2}, {WeightType::f32, 1, 24, 4},   {WeightType::f16, 8, 128, 2},
    {WeightType::f16, 3, 256, 18}, {WeightType::f16, 4, 4096, 1},
};

/// A site's weights on both sides.
struct Site {
    RandomWeight fn;
    DeviceWeight device_fn;
    std::vector<float> base, scale, norm;
    DeviceArray<float> device_base, device_scale, device_norm;

    Site(Random& random, const HcShape& shape, std::uint32_t n_rows)
        : fn(random, shape.type, shape.width(), n_rows),
          device_fn(fn),
          base(uniform_values(random, n_rows, 0.5f)),
          scale(uniform_values(random, 3)),
          norm(uniform_values(random, shape.hidden)),
          device_base(base),
          device_scale(scale),
          device_norm(norm) {}

    [[nodiscard]] HcMixParams host(const HcShape& shape) const {
        return {.fn = fn.matrix,
                .base = base.data(),
                .scale = scale.data(),
                .norm_weight = norm.data(),
                .streams = nullptr,
                .mixed = nullptr,
                .coefficients = nullptr,
                .n_tokens = shape.n_tokens,
                .n_streams = shape.n_streams,
                .hidden = shape.hidden,
                .sinkhorn_iterations = 20,
                .rms_epsilon = 1e-6f,
                .hc_epsilon = 1e-6f};
    }
    [[nodiscard]] HcMixParams device(const HcShape& shape) const {
        HcMixParams params = host(shape);
        params.fn = device_fn.matrix();
        params.base = device_base.data();
        params.scale = device_scale.data();
        params.norm_weight = device_norm.data();
        return params;
    }
};

/// Streams that a long context leaves: a few large values among ordinary ones.
std::vector<float> stream_values(Random& random, std::size_t n) {
    std::vector<float> values = extreme_values(random, n);
    for (std::size_t i = 0; i < n; i += 97) values[i] *= 1000.0f;
    return values;
}

TEST(GpuHcMix, AgreesWithTheCpuAndGivesATokenTheSameBitsInAnyChunk) {
    PLIMSOLL_NEEDS_GPU();
    Random random(511);
    DeviceStep step;
    for (const HcShape& shape : kShapes) {
        const Site site(random, shape, shape.n_mix());
        const std::vector<float> streams =
            stream_values(random, std::size_t{shape.n_tokens} * shape.width());
        const std::size_t n = std::size_t{shape.n_tokens} * shape.hidden;
        std::vector<float> mixed(n);
        std::vector<float> coefficients(std::size_t{shape.n_tokens} * shape.n_coefficients());
        HcMixParams host = site.host(shape), device = site.device(shape);
        host.streams = streams.data();
        host.mixed = mixed.data();
        host.coefficients = coefficients.data();
        cpu::hc_mix(host, Workers(2));

        const DeviceArray<float> device_streams(streams), device_mixed(n),
            device_coefficients(coefficients.size()), alone(shape.hidden);
        const DeviceArray<std::uint16_t> halves(n);
        device.streams = device_streams.data();
        device.mixed = device_mixed.data();
        device.coefficients = device_coefficients.data();
        cuda::hc_mix(device, halves.data(), step.launch());
        step.wait();
        const std::vector<float> together = device_mixed.download();
        expect_close(together, mixed, {.relative_max = 1e-5}, shape.text());
        expect_close(device_coefficients.download(), coefficients, {.relative_max = 1e-5},
                     shape.text());
        expect_equal(halves.download(), f16_of(together), shape.text() + ", float16");
        EXPECT_TRUE(device_mixed.guard_intact() && device_coefficients.guard_intact() &&
                    halves.guard_intact())
            << shape.text();

        const std::size_t last = shape.n_tokens - 1;
        device.n_tokens = 1;
        device.streams += last * shape.width();
        device.mixed = alone.data();
        cuda::hc_mix(device, nullptr, step.launch());
        step.wait();
        expect_equal(
            alone.download(),
            {together.begin() + static_cast<std::ptrdiff_t>(last * shape.hidden), together.end()},
            shape.text() + ", the last token alone");
    }
}

TEST(GpuHcMix, SinkhornGivesThePublishedCheckValue) {
    PLIMSOLL_NEEDS_GPU();
    DeviceStep step;
    const std::uint32_t hidden = 32;
    const DeviceArray<float> fn(std::vector<float>(24 * 4 * hidden, 0.0f)),
        streams(std::vector<float>(4 * hidden, 1.0f)), norm(std::vector<float>(hidden, 1.0f)),
        scale(std::vector<float>(3, 1.0f)), mixed(hidden), coefficients(20);
    std::vector<float> base(24, 0.0f);
    const float logits[16] = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0.5f, 0, 0, 0};
    std::copy_n(logits, 16, base.begin() + 8);
    const DeviceArray<float> device_base(base);
    cuda::hc_mix({{fn.data(), WeightType::f32, 4 * hidden, 24},
                  device_base.data(),
                  scale.data(),
                  norm.data(),
                  streams.data(),
                  mixed.data(),
                  coefficients.data(),
                  1,
                  4,
                  hidden,
                  20,
                  1e-6f,
                  1e-6f},
                 nullptr, step.launch());
    step.wait();
    const std::vector<float> expected = {
        1,       1,       1,       1,       .430267, .124926, .261888, .182918, .103715, .604833,
        .171598, .119854, .151860, .119854, .251254, .477031, .314157, .150386, .315260, .220196};
    expect_close(coefficients.download(), expected, {.error_max = 2e-6}, "check value");
}

TEST(GpuHcHead, AgreesWithTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(512);
    DeviceStep step;
    for (const HcShape& shape : kShapes) {
        const Site site(random, shape, shape.n_streams);
        const std::vector<float> streams =
            stream_values(random, std::size_t{shape.n_tokens} * shape.width());
        const std::size_t n = std::size_t{shape.n_tokens} * shape.hidden;
        std::vector<float> output(n);
        HcHeadParams params{
            site.fn.matrix, site.base.data(), site.scale.data(), site.norm.data(), streams.data(),
            output.data(),  shape.n_tokens,   shape.n_streams,   shape.hidden,     1e-6f,
            1e-6f};
        cpu::hc_head(params, Workers(2));
        const DeviceArray<float> device_streams(streams), device_output(n);
        const DeviceArray<std::uint16_t> halves(n);
        params.fn = site.device_fn.matrix();
        params.base = site.device_base.data();
        params.scale = site.device_scale.data();
        params.norm_weight = site.device_norm.data();
        params.streams = device_streams.data();
        params.output = device_output.data();
        cuda::hc_head(params, halves.data(), step.launch());
        step.wait();
        expect_close(device_output.download(), output, {.relative_max = 1e-5}, shape.text());
        expect_equal(halves.download(), f16_of(device_output.download()), shape.text());
        EXPECT_TRUE(device_output.guard_intact() && halves.guard_intact()) << shape.text();
    }
}

TEST(GpuHcMerge, AgreesWithTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(513);
    DeviceStep step;
    for (const HcShape& shape : kShapes) {
        std::vector<float> streams =
            stream_values(random, std::size_t{shape.n_tokens} * shape.width());
        const std::vector<float> y =
            uniform_values(random, std::size_t{shape.n_tokens} * shape.hidden, 3.0f);
        const std::vector<float> coefficients =
            uniform_values(random, std::size_t{shape.n_tokens} * shape.n_coefficients());
        const DeviceArray<float> device_streams(streams), device_y(y),
            device_coefficients(coefficients);
        cpu::hc_merge({coefficients.data(), y.data(), streams.data(), shape.n_tokens,
                       shape.n_streams, shape.hidden},
                      Workers(1));
        cuda::hc_merge({device_coefficients.data(), device_y.data(), device_streams.data(),
                        shape.n_tokens, shape.n_streams, shape.hidden},
                       step.launch());
        step.wait();
        expect_close(device_streams.download(), streams, {.relative_max = 1e-6}, shape.text());
        EXPECT_TRUE(device_streams.guard_intact()) << shape.text();
    }
}

}  // namespace
}  // namespace plimsoll::kernels
