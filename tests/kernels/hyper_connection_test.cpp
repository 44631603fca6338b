#include <algorithm>

#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Mix {
    std::vector<float> mixed;
    std::vector<float> coefficients;
};

/// One site's parameters at toy size.
struct Site {
    std::uint32_t n_streams = 4;
    std::uint32_t hidden = 96;
    RandomWeight fn;
    std::vector<float> base, scale, norm;

    explicit Site(Random& random)
        : fn(random, WeightType::f16, n_streams * hidden, n_streams * (n_streams + 2)),
          base(uniform_values(random, 24, 0.5f)),
          scale(uniform_values(random, 3)),
          norm(uniform_values(random, hidden)) {}

    [[nodiscard]] Mix mix(const float* streams, std::uint32_t n_tokens,
                          const Workers& workers) const {
        Mix out{std::vector<float>(n_tokens * hidden), std::vector<float>(n_tokens * 20)};
        cpu::hc_mix({fn.matrix, base.data(), scale.data(), norm.data(), streams, out.mixed.data(),
                     out.coefficients.data(), n_tokens, n_streams, hidden, 20, 1e-6f, 1e-6f},
                    workers);
        return out;
    }
};

std::vector<double> reference_sinkhorn(std::vector<double> c) {
    for (int j = 0; j < 4; ++j) {
        double sum = 0;
        const double largest = *std::max_element(&c[4 * j], &c[4 * j] + 4);
        for (int k = 0; k < 4; ++k) sum += c[4 * j + k] = std::exp(c[4 * j + k] - largest);
        for (int k = 0; k < 4; ++k) c[4 * j + k] = c[4 * j + k] / sum + 1e-6;
    }
    for (int pass = 0; pass < 39; ++pass)
        for (int a = 0; a < 4; ++a) {
            double sum = 1e-6;
            for (int b = 0; b < 4; ++b) sum += pass % 2 == 0 ? c[4 * b + a] : c[4 * a + b];
            for (int b = 0; b < 4; ++b) (pass % 2 == 0 ? c[4 * b + a] : c[4 * a + b]) /= sum;
        }
    return c;
}

TEST(HcMix, SinkhornGivesThePublishedCheckValue) {
    // fn is zero, so the comb logits are the base.
    const std::uint32_t hidden = 32;
    const std::vector<float> fn(24 * 4 * hidden, 0.0f), streams(4 * hidden, 1.0f),
        norm(hidden, 1.0f);
    const std::vector<float> scale(3, 1.0f);
    std::vector<float> base(24, 0.0f), mixed(hidden), coefficients(20);
    const float logits[16] = {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0.5f, 0, 0, 0};
    std::copy_n(logits, 16, base.begin() + 8);
    cpu::hc_mix({{fn.data(), WeightType::f32, 4 * hidden, 24},
                 base.data(),
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
                Workers(1));
    const std::vector<double> expected = {.430267, .124926, .261888, .182918, .103715, .604833,
                                          .171598, .119854, .151860, .119854, .251254, .477031,
                                          .314157, .150386, .315260, .220196};
    expect_near({coefficients.begin() + 4, coefficients.end()}, expected, 1e-6);
    for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(coefficients[static_cast<std::size_t>(i)], 1.0f);
}

TEST(HcMix, AgreesWithTheReference) {
    Random random(41);
    const Site site(random);
    const std::size_t width = 4 * site.hidden;
    const std::vector<float> streams = extreme_values(random, 3 * width);
    const Mix actual = site.mix(streams.data(), 3, Workers(2));
    for (std::size_t t = 0; t < 3; ++t) {
        const std::vector<double> x(streams.begin() + static_cast<std::ptrdiff_t>(t * width),
                                    streams.begin() + static_cast<std::ptrdiff_t>((t + 1) * width));
        const std::vector<double> f = reference_rms(x, nullptr, 1e-6);
        double z[24] = {};
        for (std::size_t o = 0; o < 24; ++o) {
            for (std::size_t i = 0; i < width; ++i) z[o] += f[i] * site.fn.values[o * width + i];
            z[o] = z[o] * static_cast<double>(site.scale[o < 4   ? 0
                                                         : o < 8 ? 1
                                                                 : 2]) +
                   static_cast<double>(site.base[o]);
        }
        std::vector<double> u(site.hidden), coefficients(4);
        for (std::size_t s = 0; s < 4; ++s) {
            const double pre = reference_sigmoid(z[s]) + 1e-6;
            coefficients[s] = 2 * reference_sigmoid(z[4 + s]);
            for (std::size_t i = 0; i < site.hidden; ++i) u[i] += pre * x[s * site.hidden + i];
        }
        const std::vector<double> comb = reference_sinkhorn({z + 8, z + 24});
        coefficients.insert(coefficients.end(), comb.begin(), comb.end());
        const auto row = [&](const std::vector<float>& all, std::size_t n) {
            return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(t * n),
                                      all.begin() + static_cast<std::ptrdiff_t>((t + 1) * n));
        };
        expect_near(row(actual.coefficients, 20), coefficients, 1e-5);
        expect_near(row(actual.mixed, site.hidden), reference_rms(u, site.norm.data(), 1e-6), 1e-5);
    }
}

TEST(HcMix, GivesATokenTheSameBitsInAnyBatchAndThreadCount) {
    Random random(42);
    const Site site(random);
    const std::size_t width = 4 * site.hidden;
    const std::vector<float> streams = uniform_values(random, 21 * width);
    const Mix together = site.mix(streams.data(), 21, Workers(3));
    Mix apart;
    for (std::size_t t = 0; t < 21; ++t) {
        const Mix one = site.mix(streams.data() + t * width, 1, Workers(1));
        apart.mixed.insert(apart.mixed.end(), one.mixed.begin(), one.mixed.end());
        apart.coefficients.insert(apart.coefficients.end(), one.coefficients.begin(),
                                  one.coefficients.end());
    }
    expect_same(apart.mixed, together.mixed);
    expect_same(apart.coefficients, together.coefficients);
}

TEST(HcMerge, SumsOverTheRowsOfComb) {
    Random random(43);
    const std::uint32_t hidden = 40;
    const std::vector<float> coefficients = uniform_values(random, 2 * 20),
                             y = uniform_values(random, 2 * hidden);
    std::vector<float> streams = uniform_values(random, 2 * 4 * hidden);
    std::vector<double> expected(streams.size());
    for (std::size_t t = 0; t < 2; ++t)
        for (std::size_t k = 0; k < 4; ++k)
            for (std::size_t i = 0; i < hidden; ++i) {
                double sum = static_cast<double>(coefficients[t * 20 + k]) *
                             static_cast<double>(y[t * hidden + i]);
                for (std::size_t j = 0; j < 4; ++j)
                    sum += static_cast<double>(coefficients[t * 20 + 4 + 4 * j + k]) *
                           static_cast<double>(streams[(t * 4 + j) * hidden + i]);
                expected[(t * 4 + k) * hidden + i] = sum;
            }
    cpu::hc_merge({coefficients.data(), y.data(), streams.data(), 2, 4, hidden}, Workers(2));
    expect_near(streams, expected, 1e-6);
}

TEST(HcHead, AgreesWithTheReference) {
    Random random(44);
    const std::uint32_t hidden = 64;
    const RandomWeight fn(random, WeightType::f16, 4 * hidden, 4);
    const std::vector<float> base = uniform_values(random, 4), scale = {0.7f},
                             norm = uniform_values(random, hidden);
    const std::vector<float> streams = uniform_values(random, 4 * hidden);
    std::vector<float> actual(hidden);
    cpu::hc_head({fn.matrix, base.data(), scale.data(), norm.data(), streams.data(), actual.data(),
                  1, 4, hidden, 1e-6f, 1e-6f},
                 Workers(2));
    const std::vector<double> f = reference_rms({streams.begin(), streams.end()}, nullptr, 1e-6);
    std::vector<double> h(hidden);
    for (std::size_t s = 0; s < 4; ++s) {
        double z = 0;
        for (std::size_t i = 0; i < f.size(); ++i) z += f[i] * fn.values[s * f.size() + i];
        const double w =
            reference_sigmoid(z * static_cast<double>(scale[0]) + static_cast<double>(base[s])) +
            1e-6;
        for (std::size_t i = 0; i < hidden; ++i)
            h[i] += w * static_cast<double>(streams[s * hidden + i]);
    }
    expect_near(actual, reference_rms(h, norm.data(), 1e-6), 1e-5);
}

}  // namespace
}  // namespace plimsoll::kernels
