#include <atomic>
#include <chrono>
#include <thread>

#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

TEST(Workers, VisitEveryItemOnceInRangesOfTheGrain) {
    for (const std::uint32_t n_threads : {1u, 2u, 5u}) {
        const Workers workers(n_threads);
        for (std::uint64_t count = 0; count < 70; ++count) {
            std::vector<std::atomic<int>> visits(count);
            workers.parallel_for(count, 7, [&](std::uint64_t first, std::uint64_t last) {
                EXPECT_EQ(first % 7, 0u);
                EXPECT_LE(last - first, 7u);
                for (std::uint64_t i = first; i < last; ++i) ++visits[i];
            });
            for (const auto& visit : visits) ASSERT_EQ(visit.load(), 1);
        }
    }
}

TEST(Workers, WakeAfterSleepingAndSurviveManySmallJobs) {
    const Workers workers(3);
    std::atomic<std::uint64_t> sum{0};
    for (int round = 0; round < 5; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        for (int job = 0; job < 2000; ++job)
            workers.parallel_for(8, 1, [&](std::uint64_t first, std::uint64_t) {
                sum.fetch_add(first, std::memory_order_relaxed);
            });
    }
    EXPECT_EQ(sum.load(), 5u * 2000u * 28u);
}

}  // namespace
}  // namespace plimsoll::kernels
