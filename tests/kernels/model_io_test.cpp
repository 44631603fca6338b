#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

TEST(Embed, FillsEveryStreamWithTheTokensRow) {
    Random random(111);
    for (const WeightType type :
         {WeightType::f16, WeightType::f32, WeightType::bf16, WeightType::q8_0}) {
        const RandomWeight table(random, type, 64, 10);
        const std::vector<std::int32_t> ids = {9, 0, 3};
        std::vector<float> streams(3 * 4 * 64);
        cpu::embed({table.matrix, ids.data(), streams.data(), 3, 4}, Workers(2));
        for (std::size_t i = 0; i < streams.size(); ++i)
            ASSERT_NEAR(static_cast<double>(streams[i]),
                        table.values[static_cast<std::size_t>(ids[i / 256]) * 64 + i % 64], 1e-7);
    }
}

TEST(Argmax, TakesTheLowestOfEqualLogits) {
    const float logits[] = {-1.0f, 3.0f, 2.0f, 3.0f};
    EXPECT_EQ(cpu::argmax(logits, 4), 1);
    EXPECT_EQ(cpu::argmax(logits, 1), 0);
}

TEST(MtpInput, AddsTheEmbeddingToEveryStreamInBothModes) {
    Random random(112);
    const std::uint32_t hidden = 256, n_tokens = 5;
    const RandomWeight table(random, WeightType::f16, hidden, 7);
    const RandomWeight e_proj(random, WeightType::q8_0, hidden, hidden),
        h_proj(random, WeightType::q8_0, hidden, hidden);
    const std::vector<float> enorm = uniform_values(random, hidden),
                             hnorm = uniform_values(random, hidden);
    const std::vector<std::int32_t> ids = {3, 6, 0, 1, 3};
    const std::vector<float> before = uniform_values(random, n_tokens * 4 * hidden);
    const auto run = [&](std::uint32_t first, std::uint32_t n, ActivationMode mode) {
        std::vector<float> streams(n * 4 * hidden);
        std::vector<std::byte> workspace(mtp_input_workspace_bytes(n, 4, hidden));
        cpu::mtp_input({table.matrix, e_proj.matrix, h_proj.matrix, enorm.data(), hnorm.data(),
                        ids.data() + first, before.data() + std::size_t{first} * 4 * hidden,
                        streams.data(), workspace.data(), n, 4, hidden, 1e-6f, mode},
                       Workers(2));
        return streams;
    };
    std::vector<double> expected;
    const auto project = [&](const RandomWeight& weight, const std::vector<double>& x) {
        std::vector<double> y(hidden);
        for (std::size_t o = 0; o < hidden; ++o)
            for (std::size_t i = 0; i < hidden; ++i) y[o] += weight.values[o * hidden + i] * x[i];
        return y;
    };
    for (std::size_t row = 0; row < n_tokens * 4; ++row) {
        const auto id = static_cast<std::ptrdiff_t>(ids[row / 4]);
        const auto e = project(e_proj, reference_rms({table.values.begin() + id * hidden,
                                                      table.values.begin() + (id + 1) * hidden},
                                                     enorm.data(), 1e-6));
        const auto at = before.begin() + static_cast<std::ptrdiff_t>(row * hidden);
        const auto h = project(h_proj, reference_rms({at, at + hidden}, hnorm.data(), 1e-6));
        for (std::size_t i = 0; i < hidden; ++i) expected.push_back(e[i] + h[i]);
    }
    expect_near(run(0, n_tokens, ActivationMode::precise), expected, 1e-5);
    expect_near(run(0, n_tokens, ActivationMode::fast), expected, 3e-2);
    for (const ActivationMode mode : {ActivationMode::precise, ActivationMode::fast}) {
        std::vector<float> apart;
        for (std::uint32_t t = 0; t < n_tokens; ++t) {
            const auto one = run(t, 1, mode);
            apart.insert(apart.end(), one.begin(), one.end());
        }
        expect_same(apart, run(0, n_tokens, mode));
    }
}

}  // namespace
}  // namespace plimsoll::kernels
