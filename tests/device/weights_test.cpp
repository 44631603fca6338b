#include "kernels/cuda/ops.hpp"
#include "kernels/half.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

class Weights : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Types, Weights, testing::ValuesIn(kAllTypes));

TEST_P(Weights, AreRepackedIntoPlanesInAnyPortions) {
    PLIMSOLL_NEEDS_GPU();
    Random random(701);
    DeviceStep step;
    for (const std::uint32_t n_in : {256u, 768u}) {
        const std::uint32_t n_out = 7;
        const RandomWeight weight(random, GetParam(), n_in, n_out);
        const std::size_t row_bytes = weight.bytes.size() / n_out;
        DeviceBytes file(weight.bytes.size()), planes(weight.bytes.size());
        file.upload(weight.bytes.data(), weight.bytes.size());
        for (const auto& [first, n] : {std::pair{0u, 3u}, {3u, 1u}, {4u, 0u}, {4u, 3u}})
            cuda::repack_weights(
                {.file_rows = static_cast<const std::byte*>(file.data()) + first * row_bytes,
                 .planes = planes.data(),
                 .type = GetParam(),
                 .n_in = n_in,
                 .n_out = n_out,
                 .row_first = first,
                 .n_rows = n},
                step.launch());
        step.wait();
        std::vector<std::byte> made(weight.bytes.size());
        planes.download(made.data(), made.size());
        expect_equal(made, planes_of(GetParam(), weight.bytes), "n_in " + std::to_string(n_in));
        EXPECT_TRUE(planes.guard_intact());
    }
}

TEST_P(Weights, AsFloat16AreThoseOfTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(702);
    DeviceStep step;
    const RandomWeight weight(random, GetParam(), 512, 9);
    const DeviceWeight planes(weight);
    DeviceArray<std::uint16_t> made(512 * 9);
    cuda::dequantize_f16({.weight = planes.matrix(), .output = made.data()}, step.launch());
    step.wait();
    std::vector<std::uint16_t> expected(512 * 9);
    cpu::dequantize_f16({weight.matrix, 0, 9, expected.data()}, Workers(1));
    // The CPU may contract scale * q - min: a step of float16 at the most, near zero more of them.
    expect_close(f32_of(made.download()), f32_of(expected), {.relative_max = 1e-3}, "float16");
    EXPECT_TRUE(made.guard_intact());
}

TEST(ToF16, RoundsToNearestAndClamps) {
    PLIMSOLL_NEEDS_GPU();
    Random random(703);
    DeviceStep step;
    for (const std::size_t n : {1u, 4u, 1027u}) {
        std::vector<float> values = extreme_values(random, n);
        values[0] = 1e6f;
        values[n - 1] = n > 1 ? -INFINITY : 65519.0f;
        const DeviceArray<float> input(values);
        DeviceArray<std::uint16_t> output(n);
        cuda::to_f16({.input = input.data(), .output = output.data(), .n = n}, step.launch());
        step.wait();
        std::vector<std::uint16_t> expected(n);
        for (std::size_t i = 0; i < n; ++i)
            expected[i] = f16_from_f32(std::min(std::max(values[i], -65504.0f), 65504.0f));
        expect_equal(output.download(), expected, "n " + std::to_string(n));
        EXPECT_TRUE(output.guard_intact());
    }
}

TEST_P(Weights, AsEmbeddingsFillEveryStream) {
    PLIMSOLL_NEEDS_GPU();
    Random random(704);
    DeviceStep step;
    const std::uint32_t hidden = 256, vocab = 10, n_streams = 4;
    const RandomWeight table(random, GetParam(), hidden, vocab);
    const DeviceWeight planes(table);
    const std::vector<std::int32_t> ids = {9, 0, 3};
    const DeviceArray<std::int32_t> device_ids(ids);
    std::vector<float> expected(3 * n_streams * hidden);
    cpu::embed({table.matrix, ids.data(), expected.data(), 3, n_streams}, Workers(1));
    DeviceArray<float> streams(expected.size());
    cuda::embed({planes.matrix(), device_ids.data(), streams.data(), 3, n_streams}, step.launch());
    step.wait();
    expect_close(streams.download(), expected, {.relative_max = 1e-6}, "three tokens");
    EXPECT_TRUE(streams.guard_intact());

    DeviceArray<float> of_state(n_streams * hidden);
    cuda::embed({planes.matrix(), nullptr, of_state.data(), 1, n_streams}, step.launch(5, 9));
    step.wait();
    expect_close(of_state.download(), std::span(expected).first(n_streams * hidden),
                 {.relative_max = 1e-6}, "the step's token");
    EXPECT_TRUE(of_state.guard_intact());
}

}  // namespace
}  // namespace plimsoll::kernels
