#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

RopeParams yarn_of_flash() {
    return {.base = 160000.0,
            .rope_dim = 64,
            .yarn = true,
            .factor = 16.0,
            .original_context_tokens = 65536.0,
            .beta_fast = 32.0,
            .beta_slow = 1.0};
}

TEST(RopeFrequencies, YarnRampsBetweenPairs15And25) {
    const YarnRamp ramp = yarn_ramp(yarn_of_flash());
    EXPECT_EQ(ramp.lo, 15);
    EXPECT_EQ(ramp.hi, 25);
    std::vector<double> omega(32);
    rope_frequencies(yarn_of_flash(), omega);
    for (int i = 0; i < 32; ++i) {
        const double plain = std::pow(160000.0, -2.0 * i / 64.0);
        const double actual = omega[static_cast<std::size_t>(i)];
        if (i <= 15) {
            EXPECT_DOUBLE_EQ(actual, plain);
        }
        if (i >= 25) {
            EXPECT_DOUBLE_EQ(actual, plain / 16.0);
        }
    }
    EXPECT_NEAR(omega[20], 2.96977778e-4, 1e-12);
}

TEST(RopeFrequencies, PlainLayersUseTheBaseAlone) {
    std::vector<double> omega(32);
    rope_frequencies({.base = 10000.0, .rope_dim = 64}, omega);
    for (int i = 0; i < 32; ++i)
        EXPECT_DOUBLE_EQ(omega[static_cast<std::size_t>(i)], std::pow(10000.0, -2.0 * i / 64.0));
}

TEST(Rope, RotatesTheTailOfEachHeadAndTheInverseUndoesIt) {
    Random random(51);
    std::vector<double> omega(8);
    rope_frequencies({.base = 10000.0, .rope_dim = 16}, omega);
    const RopeTable table{omega.data(), 16};
    for (const std::uint64_t position :
         {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 20}) {
        const std::vector<float> before = uniform_values(random, 3 * 2 * 80);
        std::vector<float> rotated = before;
        std::vector<double> expected(before.begin(), before.end());
        for (std::size_t t = 0; t < 3; ++t)
            for (std::size_t h = 0; h < 2; ++h)
                reference_rope(&expected[(t * 2 + h) * 80 + 64], omega,
                               static_cast<double>(position + t), false);
        cpu::rope({rotated.data(), table, position, 3, 2, 80, false}, Workers(2));
        expect_near(rotated, expected, 1e-6);
        cpu::rope({rotated.data(), table, position, 3, 2, 80, true}, Workers(1));
        expect_near(rotated, {before.begin(), before.end()}, 1e-6);
    }
}

TEST(RmsNorm, AgreesWithTheReferenceAndIsSafeInPlace) {
    Random random(52);
    for (const std::uint32_t dim : {1u, 7u, 80u, 512u}) {
        std::vector<float> x = extreme_values(random, 5 * dim),
                           weight = uniform_values(random, dim), y(x.size());
        if (dim > 1) std::fill(x.begin(), x.begin() + dim, 0.0f);
        for (const float* w :
             {static_cast<const float*>(nullptr), static_cast<const float*>(weight.data())}) {
            std::vector<double> expected;
            for (std::size_t r = 0; r < 5; ++r) {
                const auto row =
                    reference_rms({x.begin() + static_cast<std::ptrdiff_t>(r * dim),
                                   x.begin() + static_cast<std::ptrdiff_t>((r + 1) * dim)},
                                  w, 1e-6);
                expected.insert(expected.end(), row.begin(), row.end());
            }
            cpu::rms_norm({x.data(), w, y.data(), 5, dim, 1e-6f}, Workers(2));
            expect_near(y, expected, 1e-6);
            std::vector<float> in_place = x;
            cpu::rms_norm({in_place.data(), w, in_place.data(), 5, dim, 1e-6f}, Workers(1));
            expect_same(in_place, y);
        }
    }
}

}  // namespace
}  // namespace plimsoll::kernels
