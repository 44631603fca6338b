#include <algorithm>

#include "kernels/cache_rounding.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/half.hpp"
#include "kernels/iq2_tables.hpp"
#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

constexpr const char* kIsaNames[] = {"portable", "avx2", "avx512"};

TEST(Half, EveryBitPatternSurvivesTheRoundTrip) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = f32_from_f16(half);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(value))));
            continue;
        }
        ASSERT_EQ(f16_from_f32(value), half);
    }
}

TEST(Half, MidpointsGoToTheEvenNeighbour) {
    for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
        const float midpoint =
            0.5f * (f32_from_f16(bits) + f32_from_f16(static_cast<std::uint16_t>(bits + 1)));
        const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
        ASSERT_EQ(f16_from_f32(midpoint), even) << bits;
    }
    EXPECT_EQ(f16_from_f32(65519.0f), 0x7bff);
    EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
}

TEST(E4m3, EveryCodeIsItsOwnNearestAndMidpointsGoToTheEvenCode) {
    for (std::uint8_t code = 0; code < 127; ++code) {
        const int exponent = code >> 3, mantissa = code & 7;
        const double value = exponent == 0 ? std::ldexp(mantissa, -9)
                                           : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
        ASSERT_EQ(static_cast<double>(f32_from_e4m3(code)), value);
        ASSERT_EQ(e4m3_from_f32(static_cast<float>(value)), code);
        ASSERT_EQ(e4m3_from_f32(static_cast<float>(-value)), code | 0x80);
        if (code == 126) continue;
        const float next = f32_from_e4m3(static_cast<std::uint8_t>(code + 1));
        const float midpoint = 0.5f * (static_cast<float>(value) + next);
        ASSERT_EQ(e4m3_from_f32(midpoint), code % 2 == 0 ? code : code + 1);
        ASSERT_EQ(e4m3_from_f32(std::nextafter(midpoint, 1e9f)), code + 1);
        ASSERT_EQ(e4m3_from_f32(std::nextafter(midpoint, 0.0f)), code);
    }
    EXPECT_EQ(f32_from_e4m3(126), 448.0f);
}

TEST(E2m1, EveryCodeIsItsOwnNearestAndMidpointsGoToTheEvenCode) {
    const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (std::uint8_t code = 0; code < 8; ++code) {
        ASSERT_EQ(f32_from_e2m1(code), magnitudes[code]);
        ASSERT_EQ(e2m1_from_f32(magnitudes[code]), code);
        ASSERT_EQ(f32_from_e2m1(e2m1_from_f32(-magnitudes[code])), -magnitudes[code]);
        if (code == 7) continue;
        const float midpoint = 0.5f * (magnitudes[code] + magnitudes[code + 1]);
        ASSERT_EQ(e2m1_from_f32(midpoint), code % 2 == 0 ? code : code + 1);
        ASSERT_EQ(e2m1_from_f32(std::nextafter(midpoint, 9.0f)), code + 1);
        ASSERT_EQ(e2m1_from_f32(std::nextafter(midpoint, 0.0f)), code);
    }
}

TEST(CacheRounding, ScaleIsTheLeastPowerOfTwoThatCoversTheBlock) {
    for (int e = -20; e < 20; ++e) {
        const float limit = std::ldexp(448.0f, e);
        EXPECT_EQ(fp8_scale_exponent(limit), e);
        EXPECT_EQ(fp8_scale_exponent(std::nextafter(limit, 1e30f)), e + 1);
        const float limit4 = std::ldexp(6.0f, e);
        EXPECT_EQ(fp4_scale_exponent(limit4), e);
        EXPECT_EQ(fp4_scale_exponent(std::nextafter(limit4, 1e30f)), e + 1);
    }
    EXPECT_EQ(fp8_scale_exponent(0.0f), -22);
    EXPECT_EQ(fp4_scale_exponent(0.0f), -126);
    EXPECT_EQ(fp8_scale_exponent(3.4e38f), 120);
}

TEST(CacheRounding, RoundingTwiceChangesNothing) {
    Random random(11);
    for (int round = 0; round < 50; ++round) {
        std::vector<float> once = extreme_values(random, 448);
        fp8_round(once.data(), 448);
        std::vector<float> twice = once;
        fp8_round(twice.data(), 448);
        expect_same(once, twice);
        std::vector<float> rotated = extreme_values(random, 128);
        hadamard(rotated.data(), 128);
        fp4_round(rotated.data(), 128);
        twice = rotated;
        fp4_round(twice.data(), 128);
        expect_same(rotated, twice);
    }
}

TEST(CacheRounding, HadamardIsItsOwnInverse) {
    Random random(12);
    const std::vector<float> x = uniform_values(random, 128);
    std::vector<float> y = x;
    hadamard(y.data(), 128);
    // Element 0 is the sum: the order of the butterfly is natural.
    double sum = 0;
    for (const float value : x) sum += static_cast<double>(value);
    EXPECT_NEAR(static_cast<double>(y[0]), sum / std::sqrt(128.0), 1e-5);
    hadamard(y.data(), 128);
    expect_near(y, std::vector<double>(x.begin(), x.end()), 1e-6);
}

TEST(Iq2Tables, RowsAscendByCodeAndSignsAreEven) {
    std::uint64_t last = 0;
    for (int row = 0; row < 256; ++row) {
        std::uint64_t code = 0;
        for (int j = 0; j < 8; ++j) {
            const std::uint64_t magnitude = (kIq2XxsGrid[row] >> (8 * j)) & 255;
            ASSERT_TRUE(magnitude == 8 || magnitude == 25 || magnitude == 43);
            code += (magnitude == 8 ? 0ull : magnitude == 25 ? 1ull : 2ull) << (2 * j);
        }
        if (row > 0) {
            ASSERT_GT(code, last);
        }
        last = code;
    }
    EXPECT_EQ(iq2_xxs_signs(1), 129);
    EXPECT_EQ(iq2_xxs_signs(2), 130);
    EXPECT_EQ(iq2_xxs_signs(3), 3);
}

std::vector<float> dequantized(const WeightMatrix& weight) {
    std::vector<float> out(std::size_t{weight.n_in} * weight.n_out);
    cpu::dequantize_f32({weight, 0, weight.n_out, out.data()}, Workers(1));
    return out;
}

TEST(Dequantize, WorkedExamplesOfTheFormats) {
    std::vector<std::byte> q8(34);
    const std::uint16_t d = 0x2E66;
    std::memcpy(q8.data(), &d, 2);
    q8[2] = std::byte{0xfd};
    EXPECT_NEAR(dequantized({q8.data(), WeightType::q8_0, 32, 1})[0], -0.29993f, 1e-5f);

    std::vector<std::byte> iq2(66);
    const std::uint16_t one = 0x3C00;
    const std::uint32_t a = 1, s = 0x20000081;
    std::memcpy(iq2.data(), &one, 2);
    std::memcpy(iq2.data() + 2, &a, 4);
    std::memcpy(iq2.data() + 6, &s, 4);
    std::vector<float> values = dequantized({iq2.data(), WeightType::iq2_xxs, 256, 1});
    values.resize(32);
    const std::vector<double> expected = {-26.875, 5, 5, 5, 5, 5, 5, -5, -5, 5, 5, 5, 5, 5, 5, -5,
                                          5,       5, 5, 5, 5, 5, 5, 5,  5,  5, 5, 5, 5, 5, 5, 5};
    expect_near(values, expected, 0);

    std::vector<std::byte> q4(144);
    std::memcpy(q4.data(), &one, 2);
    std::memcpy(q4.data() + 2, &one, 2);
    q4[4 + 0] = static_cast<std::byte>(0xC5);
    q4[4 + 4] = static_cast<std::byte>(0x03);
    q4[4 + 8] = static_cast<std::byte>(0x21);
    q4[16] = static_cast<std::byte>(1);       // element 0, sub-block 0
    q4[16 + 64] = static_cast<std::byte>(1);  // element 128, sub-block 4
    values = dequantized({q4.data(), WeightType::q4_k, 256, 1});
    EXPECT_EQ(values[0], 5.0f - 3.0f);
    EXPECT_EQ(values[1], -3.0f);
    EXPECT_EQ(values[128], 49.0f - 2.0f);
    EXPECT_EQ(values[129], -2.0f);
}

TEST(Dequantize, EveryTypeAndInstructionSetAgreesWithTheReference) {
    Random random(21);
    for (const WeightType type : kAllTypes) {
        const RandomWeight weight(random, type, 512, 3);
        expect_near(dequantized(weight.matrix), weight.values, 1e-6);
        for (const char* isa : kIsaNames) {
            const cpu::Leaf* leaf = cpu::find_leaf(isa);
            if (leaf == nullptr) continue;
            std::vector<float> row(512);
            leaf->decode(type, weight.bytes.data(), 0, 512, row.data());
            expect_near(row, {weight.values.begin(), weight.values.begin() + 512}, 1e-6);
        }
        std::vector<std::uint16_t> halves(512);
        cpu::dequantize_f16({weight.matrix, 1, 2, halves.data()}, Workers(1));
        for (std::size_t i = 0; i < 512; ++i)
            ASSERT_NEAR(static_cast<double>(f32_from_f16(halves[i])), weight.values[512 + i], 1e-3);
    }
}

TEST(Quantize, TheLargestMagnitudeTakesTheLargestInteger) {
    std::vector<float> x(256, 0.0f);
    x[3] = 1.0f;
    x[7] = 2.0f;
    x[9] = -2.0f;
    ActivationQ16KBlock block;
    cpu::quantize_activations({x.data(), &block, 1, 256, ActivationFormat::q16k}, Workers(1));
    EXPECT_EQ(block.d, 2.0f / 32767.0f);
    EXPECT_NEAR(block.q[3], 16383.5, 0.5);
    EXPECT_EQ(block.q[7], 32767);
    EXPECT_EQ(block.q[9], -32767);
    EXPECT_EQ(block.sum[0], block.q[3]);
}

TEST(Quantize, BlocksFollowTheDefinitionOnEveryInstructionSet) {
    Random random(22);
    const auto expected = [](const std::vector<float>& x, std::size_t i, std::size_t block) {
        float amax = 0;
        for (std::size_t j = i / block * block; j < (i / block + 1) * block; ++j)
            amax = std::max(amax, std::fabs(x[j]));
        const float d = amax / 32767.0f;
        const float q = d == 0 ? 0 : std::clamp(std::nearbyint(x[i] / d), -32767.0f, 32767.0f);
        return std::pair(d, q);
    };
    for (int round = 0; round < 20; ++round) {
        std::vector<float> x = extreme_values(random, 256);
        if (round == 0) std::fill(x.begin(), x.end(), 0.0f);
        if (round == 1) std::fill(x.begin(), x.end(), 1e-42f);
        if (round == 2)
            for (float& value : x) value *= 1e30f;
        for (const char* isa : kIsaNames) {
            const cpu::Leaf* leaf = cpu::find_leaf(isa);
            if (leaf == nullptr) continue;
            ActivationQ16Block q16[8];
            leaf->quantize_q16(x.data(), 256, q16);
            ActivationQ16KBlock q16k;
            leaf->quantize_q16k(x.data(), 256, &q16k);
            int sums[16] = {};
            for (std::size_t i = 0; i < 256; ++i) {
                const auto [d, q] = expected(x, i, 32);
                ASSERT_EQ(q16[i / 32].d, d);
                ASSERT_EQ(static_cast<float>(q16[i / 32].q[i % 32]), q) << i;
                const auto [d_all, q_all] = expected(x, i, 256);
                ASSERT_EQ(q16k.d, d_all);
                ASSERT_EQ(static_cast<float>(q16k.q[i]), q_all) << i;
                sums[i / 16] += q16k.q[i];
            }
            for (int j = 0; j < 16; ++j) ASSERT_EQ(q16k.sum[j], sums[j]);
        }
    }
}

TEST(Leaf, ExpIsWithinTwoUlpAndDoesNotDependOnTheLength) {
    for (const char* isa : kIsaNames) {
        const cpu::Leaf* leaf = cpu::find_leaf(isa);
        if (leaf == nullptr) continue;
        std::vector<float> x;
        for (float value = -90.0f; value < 88.7f; value += 0.0137f) x.push_back(value);
        x.insert(x.end(), {0.0f, -0.0f, 100.0f, -1e30f, -INFINITY, INFINITY});
        std::vector<float> together = x;
        leaf->exp(together.data(), static_cast<std::uint32_t>(x.size()));
        for (std::size_t i = 0; i < x.size(); ++i) {
            float alone = x[i];
            leaf->exp(&alone, 1);
            ASSERT_EQ(alone, together[i]);
            const double exact = std::exp(static_cast<double>(x[i]));
            if (x[i] < -87.3f)
                ASSERT_EQ(alone, 0.0f);
            else if (x[i] > 88.73f)
                ASSERT_TRUE(std::isinf(alone));
            else
                ASSERT_NEAR(static_cast<double>(alone), exact, 2.4e-7 * exact)
                    << x[i] << " on " << isa;
        }
    }
}

}  // namespace
}  // namespace plimsoll::kernels
