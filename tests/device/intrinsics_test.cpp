#include "tests/device/intrinsics_kernels.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels::test {
namespace {

TEST(Intrinsics, MultiplyATileByTheDocumentedFragments) {
    PLIMSOLL_NEEDS_GPU();
    Random random(1);
    const std::vector<std::uint16_t> a = f16_of(uniform_values(random, 16 * 16));
    const std::vector<std::uint16_t> b = f16_of(uniform_values(random, 16 * 8));
    const std::vector<float> start = uniform_values(random, 16 * 8);
    const std::vector<float> a_values = f32_of(a), b_values = f32_of(b);
    std::vector<float> expected = start;
    for (std::size_t row = 0; row < 16; ++row)
        for (std::size_t column = 0; column < 8; ++column)
            for (std::size_t k = 0; k < 16; ++k)
                expected[row * 8 + column] += a_values[row * 16 + k] * b_values[k * 8 + column];
    DeviceArray<std::uint16_t> a_there(a), b_there(b);
    DeviceArray<float> product(start);
    DeviceStep step;
    multiply_tile(a_there.data(), b_there.data(), product.data(), step.launch());
    step.wait();
    expect_close(product.download(), expected, {.error_max = 1e-5}, "16 x 8 x 16");
    EXPECT_TRUE(product.guard_intact());
}

TEST(Intrinsics, SumBlocksThroughAsynchronousCopies) {
    PLIMSOLL_NEEDS_GPU();
    constexpr std::uint32_t kBlocks = 11;
    Random random(2);
    const std::vector<float> values = uniform_values(random, kBlocks * 256);
    std::vector<float> expected(kBlocks);
    for (std::size_t i = 0; i < values.size(); ++i) expected[i / 256] += values[i];
    DeviceArray<float> values_there(values), sums(kBlocks);
    DeviceStep step;
    sum_blocks(values_there.data(), sums.data(), kBlocks, step.launch());
    step.wait();
    expect_close(sums.download(), expected, {.error_max = 1e-4}, "11 blocks of 256");
    EXPECT_TRUE(sums.guard_intact());
}

TEST(Intrinsics, AllBlocksMeetAndSeeWhatOthersWrote) {
    PLIMSOLL_NEEDS_GPU();
    for (const std::uint32_t n_blocks : {1u, 5u, 8u}) {
        DeviceArray<std::uint32_t> numbers(n_blocks), totals(2 * n_blocks);
        DeviceStep step;
        // Once more with a counter that an earlier launch left.
        for (int launch = 0; launch < 2; ++launch) {
            totals.poison();
            meet_twice(numbers.data(), totals.data(), n_blocks, step.launch());
            step.wait();
            std::vector<std::uint32_t> expected(n_blocks, n_blocks * (n_blocks + 1) / 2);
            expected.resize(2 * n_blocks, n_blocks * (n_blocks + 1) / 2 + 100 * n_blocks);
            expect_equal(totals.download(), expected, std::to_string(n_blocks) + " blocks");
        }
    }
}

TEST(Intrinsics, WarpOperationsReachTheLanesTheyName) {
    PLIMSOLL_NEEDS_GPU();
    DeviceArray<std::uint32_t> results(kWarpResults * kWarpThreads);
    DeviceStep step;
    warp_operations(results.data(), step.launch());
    step.wait();
    const std::vector<std::uint32_t> actual = results.download();
    for (std::uint32_t thread = 0; thread < kWarpThreads; ++thread) {
        const std::uint32_t lane = thread % 32, n_lanes = thread < 32 ? 32 : 16;
        const bool whole = n_lanes == 32;
        const std::uint32_t expected[kWarpResults] = {
            thread ^ 5,
            lane < 3 ? thread : thread - 3,
            lane % 8 + 3 < 8 ? thread + 3 : thread,
            thread / 4 * 4 + (lane + 1) % 4,
            whole ? 0x49249249u : 0x9249u,
            1,
            whole ? 0u : 1u,
            24,
            0x77B3F400u,
            // 1 * 5 + 127 * 4 + -1 * 3 + -128 * 2 + 7
            5 + 508 - 3 - 256 + 7,
            // 1 * 245 + 127 * 4 + -1 * 3 + -128 * 255 + 7
            static_cast<std::uint32_t>(245 + 508 - 3 - 32640 + 7),
            lane < 16 ? 120u : 1020u,
        };
        for (std::uint32_t n = 0; n < kWarpResults; ++n)
            EXPECT_EQ(actual[n * kWarpThreads + thread], expected[n])
                << "operation " << n << ", thread " << thread;
    }
    EXPECT_TRUE(results.guard_intact());
}

}  // namespace
}  // namespace plimsoll::kernels::test
