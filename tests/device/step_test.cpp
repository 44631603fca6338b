#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

TEST(Argmax, TakesTheLowestOfEqualLogitsInEveryRow) {
    PLIMSOLL_NEEDS_GPU();
    Random random(801);
    DeviceStep step;
    for (const auto& [n_rows, vocab] : {std::pair{1u, 1u}, {1u, 70001u}, {3u, 2049u}, {19u, 33u}}) {
        std::vector<float> logits = extreme_values(random, std::size_t{n_rows} * vocab);
        for (std::uint32_t row = 0; row < n_rows; ++row) {
            float* own = &logits[std::size_t{row} * vocab];
            if (row % 2 == 0)  // equal ones in several blocks; all below zero, and the two zeros
                for (const std::uint32_t at : {vocab - 1, vocab / 2, vocab / 3}) own[at] = 200.0f;
            else
                for (std::uint32_t i = 0; i < vocab; ++i)
                    own[i] = i == vocab / 2   ? -0.0f
                             : i == vocab - 1 ? 0.0f
                                              : -std::fabs(own[i]) - 1;
        }
        std::vector<std::int32_t> expected;
        for (std::uint32_t row = 0; row < n_rows; ++row)
            expected.push_back(cpu::argmax(&logits[std::size_t{row} * vocab], vocab));
        const DeviceArray<float> device_logits(logits);
        DeviceArray<std::int32_t> best(n_rows);
        for (int again = 0; again < 2; ++again) {  // the counters must serve again
            best.poison();
            cuda::argmax({device_logits.data(), best.data(), n_rows, vocab}, step.launch());
            step.wait();
            expect_equal(best.download(), expected,
                         std::to_string(n_rows) + " rows of " + std::to_string(vocab));
            EXPECT_TRUE(best.guard_intact());
        }
    }
}

TEST(Step, IsSetAndAdvancedByTheChosenToken) {
    PLIMSOLL_NEEDS_GPU();
    DeviceStep step;
    const cuda::Launch launch = step.launch();
    cuda::set_step((1ull << 33) + 5, 77, launch);
    step.wait();
    EXPECT_EQ(step.state().position, (1ull << 33) + 5);
    EXPECT_EQ(step.state().token, 77);
    const DeviceArray<std::int32_t> next(std::vector<std::int32_t>{123});
    cuda::advance_step(next.data(), launch);
    step.wait();
    EXPECT_EQ(step.state().position, (1ull << 33) + 6);
    EXPECT_EQ(step.state().token, 123);
    for (const auto& counter : step.state().counters)
        for (const std::uint32_t value : counter) EXPECT_EQ(value, 0u);
}

}  // namespace
}  // namespace plimsoll::kernels
