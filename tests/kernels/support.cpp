#include "tests/kernels/support.hpp"

#include <array>
#include <fstream>

#include "kernels/half.hpp"

namespace plimsoll::kernels::test {
namespace {

/// The published grid as text, read from tests/data: not the table the kernels use.
const std::array<std::array<int, 8>, 256>& reference_grid() {
    static const auto grid = [] {
        std::array<std::array<int, 8>, 256> rows{};
        std::ifstream file(PLIMSOLL_TEST_DATA "/iq2_xxs_grid.txt");
        for (auto& row : rows)
            for (int& value : row) file >> value;
        EXPECT_TRUE(file.good());
        return rows;
    }();
    return grid;
}

double half_at(const std::byte* p) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, p, 2);
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

int byte_at(const std::byte* p, std::uint32_t i) { return static_cast<int>(p[i]); }

double q2_k_at(const std::byte* block, std::uint32_t e) {
    const std::uint32_t h = e / 128, k = e % 128 / 32, l = e % 32;
    const int scales = byte_at(block, e / 16);
    const int q = (byte_at(block, 16 + 32 * h + l) >> (2 * k)) & 3;
    return half_at(block + 80) * (scales & 15) * q - half_at(block + 82) * (scales >> 4);
}

double q4_k_at(const std::byte* block, std::uint32_t e) {
    const std::uint32_t j = e / 32;
    const auto s = [&](std::uint32_t i) { return byte_at(block, 4 + i); };
    const int scale = j < 4 ? s(j) & 63 : (s(j + 4) & 15) | ((s(j - 4) >> 6) << 4);
    const int min = j < 4 ? s(j + 4) & 63 : (s(j + 4) >> 4) | ((s(j) >> 6) << 4);
    const int q = (byte_at(block, 16 + 32 * (e / 64) + e % 32) >> (4 * (j & 1))) & 15;
    return half_at(block) * scale * q - half_at(block + 2) * min;
}

double iq2_xxs_at(const std::byte* block, std::uint32_t e) {
    std::uint32_t a = 0, s = 0;
    std::memcpy(&a, block + 2 + 8 * (e / 32), 4);
    std::memcpy(&s, block + 6 + 8 * (e / 32), 4);
    const std::uint32_t l = e % 32 / 8, j = e % 8;
    const double scale = half_at(block) * (0.5 + (s >> 28)) * 0.25;
    const std::uint32_t code = (s >> (7 * l)) & 127;
    bool negative = ((code >> j) & 1) != 0;
    if (j == 7) {
        int ones = 0;
        for (int bit = 0; bit < 7; ++bit) ones += static_cast<int>((code >> bit) & 1);
        negative = ones % 2 == 1;
    }
    const int magnitude = reference_grid()[(a >> (8 * l)) & 255][j];
    return negative ? -scale * magnitude : scale * magnitude;
}

/// Offsets of a block's half-precision scales and the size that gives unit variance.
struct ScaleField {
    WeightType type;
    std::uint32_t offset;
    double size;
};
constexpr ScaleField kScaleFields[] = {
    {WeightType::q8_0, 0, 1 / 73.9},     {WeightType::q2_k, 80, 1 / 13.87},
    {WeightType::q2_k, 82, 1.5 / 13.87}, {WeightType::q4_k, 0, 1 / 258.3},
    {WeightType::q4_k, 2, 7.5 / 258.3},  {WeightType::iq2_xxs, 0, 1 / 53.36},
};

}  // namespace

std::vector<float> uniform_values(Random& random, std::size_t n, float amplitude) {
    std::vector<float> values(n);
    for (float& value : values) value = random.uniform(amplitude);
    return values;
}

std::vector<float> extreme_values(Random& random, std::size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = random.extreme();
    return values;
}

double reference_weight(WeightType type, const std::byte* row, std::uint32_t e) {
    const std::uint32_t block = e / info_of(type).block_elements;
    const std::byte* at = row + std::uint64_t{block} * info_of(type).block_bytes;
    switch (type) {
        case WeightType::f32: {
            float value = 0;
            std::memcpy(&value, at, 4);
            return static_cast<double>(value);
        }
        case WeightType::f16: return half_at(at);
        case WeightType::bf16: {
            const std::uint32_t bits =
                static_cast<std::uint32_t>(byte_at(at, 0) | byte_at(at, 1) << 8) << 16;
            float value = 0;
            std::memcpy(&value, &bits, 4);
            return static_cast<double>(value);
        }
        case WeightType::q8_0:
            return half_at(at) * static_cast<std::int8_t>(byte_at(at, 2 + e % 32));
        case WeightType::q2_k: return q2_k_at(at, e % 256);
        case WeightType::q4_k: return q4_k_at(at, e % 256);
        case WeightType::iq2_xxs: return iq2_xxs_at(at, e % 256);
    }
    return 0;
}

RandomWeight::RandomWeight(Random& random, WeightType type, std::uint32_t n_in, std::uint32_t n_out)
    : bytes(n_out * weight_row_bytes(type, n_in)),
      matrix{bytes.data(), type, n_in, n_out},
      values(std::size_t{n_in} * n_out) {
    const double size = 1.0 / std::sqrt(static_cast<double>(n_in));
    const std::uint32_t block_bytes = info_of(type).block_bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
        const float value = random.uniform(static_cast<float>(size * std::sqrt(3.0)));
        const std::uint32_t wide = std::bit_cast<std::uint32_t>(value);
        if (type == WeightType::f32) std::memcpy(&bytes[at], &value, 4);
        if (type == WeightType::bf16)
            std::memcpy(&bytes[at], reinterpret_cast<const std::byte*>(&wide) + 2, 2);
        if (type == WeightType::f16) {
            const std::uint16_t half = f16_from_f32(value);
            std::memcpy(&bytes[at], &half, 2);
        }
        for (const ScaleField& field : kScaleFields) {
            if (field.type != type) continue;
            const std::uint16_t half = f16_from_f32(static_cast<float>(field.size * size));
            std::memcpy(&bytes[at + field.offset], &half, 2);
        }
    }
    for (std::uint32_t o = 0; o < n_out; ++o)
        for (std::uint32_t i = 0; i < n_in; ++i)
            values[std::size_t{o} * n_in + i] =
                reference_weight(type, bytes.data() + o * weight_row_bytes(type, n_in), i);
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const double error = std::fabs(static_cast<double>(actual[i]) - expected[i]);
        ASSERT_LE(error, tolerance * (1.0 + std::fabs(expected[i])))
            << "element " << i << ": " << actual[i] << " for " << expected[i];
    }
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
            << "element " << i << ": " << a[i] << " and " << b[i];
}

std::vector<double> reference_rms(const std::vector<double>& x, const float* weight,
                                  double epsilon) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + epsilon);
    std::vector<double> out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
        out[i] = x[i] * scale * (weight != nullptr ? static_cast<double>(weight[i]) : 1.0);
    return out;
}

void reference_rope(double* tail, const std::vector<double>& frequencies, double position,
                    bool inverse) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = (inverse ? -position : position) * frequencies[i];
        const double a = tail[2 * i], b = tail[2 * i + 1];
        tail[2 * i] = a * std::cos(angle) - b * std::sin(angle);
        tail[2 * i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
}

}  // namespace plimsoll::kernels::test
