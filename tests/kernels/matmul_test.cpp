#include "kernels/cpu/leaf.hpp"
#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

/// Activations in a format, and the values they stand for.
struct Activations {
    std::vector<std::byte> bytes;
    std::vector<double> values;

    Activations(const std::vector<float>& x, std::uint32_t n, ActivationFormat format)
        : bytes(activation_row_bytes(format, x.size())), values(x.begin(), x.end()) {
        const auto n_tokens = static_cast<std::uint32_t>(x.size() / n);
        if (format == ActivationFormat::f32) {
            std::memcpy(bytes.data(), x.data(), bytes.size());
            return;
        }
        cpu::quantize_activations({x.data(), bytes.data(), n_tokens, n, format}, Workers(1));
        for (std::size_t i = 0; i < x.size(); ++i) {
            if (format == ActivationFormat::q16) {
                const auto& block =
                    reinterpret_cast<const ActivationQ16Block*>(bytes.data())[i / 32];
                values[i] = static_cast<double>(block.d) * block.q[i % 32];
            } else {
                const auto& block =
                    reinterpret_cast<const ActivationQ16KBlock*>(bytes.data())[i / 256];
                values[i] = static_cast<double>(block.d) * block.q[i % 256];
            }
        }
    }
};

std::vector<double> reference_product(const RandomWeight& weight, const std::vector<double>& x) {
    const std::size_t n_in = weight.matrix.n_in, n_out = weight.matrix.n_out;
    std::vector<double> y(x.size() / n_in * n_out);
    for (std::size_t t = 0; t < x.size() / n_in; ++t)
        for (std::size_t o = 0; o < n_out; ++o)
            for (std::size_t i = 0; i < n_in; ++i)
                y[t * n_out + o] += weight.values[o * n_in + i] * x[t * n_in + i];
    return y;
}

std::vector<float> product(const WeightMatrix& weight, const void* input, std::uint32_t n_tokens,
                           ActivationFormat format, const Workers& workers) {
    std::vector<float> y(std::size_t{n_tokens} * weight.n_out, NAN);
    cpu::matmul({.weight = weight,
                 .input = input,
                 .output = y.data(),
                 .output_stride = 0,
                 .n_tokens = n_tokens,
                 .input_format = format},
                workers);
    return y;
}

class MatmulOfType : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Types, MatmulOfType, testing::ValuesIn(kAllTypes));

TEST_P(MatmulOfType, AgreesWithTheReferenceInBothModesOnEveryInstructionSet) {
    Random random(31);
    const std::uint32_t n_in = info_of(GetParam()).block_elements == 256 ? 512 : 160;
    const RandomWeight weight(random, GetParam(), n_in, cpu::kRowTile);
    for (const ActivationMode mode : {ActivationMode::precise, ActivationMode::fast}) {
        const ActivationFormat format = activation_format(GetParam(), mode);
        const Activations x(extreme_values(random, 7 * n_in), n_in, format);
        const std::vector<double> expected = reference_product(weight, x.values);
        expect_near(product(weight.matrix, x.bytes.data(), 7, format, Workers(2)), expected, 2e-5);
        for (const char* isa : {"portable", "avx2", "avx512"}) {
            const cpu::Leaf* leaf = cpu::find_leaf(isa);
            if (leaf == nullptr) continue;
            std::vector<float> out(7 * cpu::kRowTile);
            const void* inputs[7];
            for (std::size_t t = 0; t < 7; ++t)
                inputs[t] = x.bytes.data() + t * activation_row_bytes(format, n_in);
            for (std::uint32_t k = 0; k < leaf->n_dot_kernels; ++k)
                if (leaf->dot_kernels[k].type == GetParam() &&
                    leaf->dot_kernels[k].format == format)
                    leaf->dot_kernels[k].run({weight.bytes.data(),
                                              weight_row_bytes(GetParam(), n_in), n_in,
                                              cpu::kRowTile, 7, inputs, out.data()});
            expect_near(out, expected, 2e-5);
        }
    }
}

TEST_P(MatmulOfType, GivesATokenTheSameBitsInAnyBatchTileAndThreadCount) {
    Random random(32);
    const std::uint32_t n_in = 512, n_out = 83, n_tokens = 37;
    const RandomWeight weight(random, GetParam(), n_in, n_out);
    for (const ActivationMode mode : {ActivationMode::precise, ActivationMode::fast}) {
        const ActivationFormat format = activation_format(GetParam(), mode);
        const Activations x(uniform_values(random, n_tokens * n_in), n_in, format);
        const std::vector<float> together =
            product(weight.matrix, x.bytes.data(), n_tokens, format, Workers(1));
        expect_same(product(weight.matrix, x.bytes.data(), n_tokens, format, Workers(3)), together);
        std::vector<float> apart;
        for (std::size_t t = 0; t < n_tokens; ++t) {
            const auto y =
                product(weight.matrix, x.bytes.data() + t * activation_row_bytes(format, n_in), 1,
                        format, Workers(2));
            apart.insert(apart.end(), y.begin(), y.end());
        }
        expect_same(apart, together);
        // In tiles of odd rows, as a streamed output head is.
        std::vector<float> tiled(together.size(), NAN);
        for (std::uint32_t row = 0; row < n_out; row += 13)
            cpu::matmul({.weight = weight.matrix,
                         .input = x.bytes.data(),
                         .output = tiled.data(),
                         .output_stride = 0,
                         .n_tokens = n_tokens,
                         .row_first = row,
                         .row_last = std::min(row + 13, n_out),
                         .input_format = format},
                        Workers(2));
        expect_same(tiled, together);
    }
}

TEST(Matmul, GroupsReadTheirOwnSliceOfTheInput) {
    Random random(33);
    const std::uint32_t n_in = 160, groups = 4, rows_per_group = 12, n_tokens = 3;
    const RandomWeight weight(random, WeightType::q8_0, n_in, groups * rows_per_group);
    for (const ActivationFormat format : {ActivationFormat::f32, ActivationFormat::q16}) {
        const Activations x(uniform_values(random, n_tokens * groups * n_in), groups * n_in,
                            format);
        std::vector<double> expected(n_tokens * groups * rows_per_group);
        for (std::size_t t = 0; t < n_tokens; ++t)
            for (std::size_t o = 0; o < groups * rows_per_group; ++o)
                for (std::size_t i = 0; i < n_in; ++i)
                    expected[t * groups * rows_per_group + o] +=
                        weight.values[o * n_in + i] *
                        x.values[(t * groups + o / rows_per_group) * n_in + i];
        std::vector<float> y(expected.size());
        cpu::matmul({.weight = weight.matrix,
                     .input = x.bytes.data(),
                     .output = y.data(),
                     .output_stride = 0,
                     .n_tokens = n_tokens,
                     .n_groups = groups,
                     .input_format = format},
                    Workers(2));
        expect_near(y, expected, 1e-5);
    }
}

TEST(Matmul, AccumulatesIntoStridedOutput) {
    Random random(34);
    const RandomWeight weight(random, WeightType::f16, 64, 5);
    const std::vector<float> x = uniform_values(random, 2 * 64);
    const std::vector<float> alone =
        product(weight.matrix, x.data(), 2, ActivationFormat::f32, Workers(1));
    std::vector<float> y(2 * 8, 1.0f);
    cpu::matmul({.weight = weight.matrix,
                 .input = x.data(),
                 .output = y.data(),
                 .output_stride = 8,
                 .n_tokens = 2,
                 .accumulate = true},
                Workers(1));
    for (std::size_t t = 0; t < 2; ++t)
        for (std::size_t o = 0; o < 8; ++o)
            EXPECT_EQ(y[t * 8 + o], o < 5 ? 1.0f + alone[t * 5 + o] : 1.0f);
}

TEST(MatmulDeathTest, StopsAtAFormatThatDoesNotBelongToTheType) {
    Random random(35);
    const RandomWeight weight(random, WeightType::f16, 64, 5);
    const std::vector<float> x(64);
    EXPECT_DEATH(product(weight.matrix, x.data(), 1, ActivationFormat::q16, Workers(1)),
                 "no product");
}

}  // namespace
}  // namespace plimsoll::kernels
