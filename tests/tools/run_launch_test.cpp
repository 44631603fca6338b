#include "tools/run_launch.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "planner/units.hpp"
#include "tests/cli/temporary_folder.hpp"
#include "tools/environment.hpp"
#include "tools/row_file.hpp"
#include "tools/run_summary.hpp"

namespace plimsoll {
namespace {

TEST(CheckMemory, NamesWhatIsMissingNow) {
    Plan plan;
    plan.devices.resize(1);
    plan.devices[0].facts.architecture = "cpu";
    plan.devices[0].arena.planned_bytes = 3 * kGiB;
    plan.host.arena.planned_bytes = kGiB;
    EXPECT_TRUE(check_memory(plan, 4 * kGiB));
    EXPECT_TRUE(check_memory(plan, 0));
    const Status refused = check_memory(plan, 4 * kGiB - 5 * kMiB);
    ASSERT_FALSE(refused);
    EXPECT_EQ(exit_status(refused.error().kind), 3);
    EXPECT_NE(refused.error().message.find("short by 5 MiB"), std::string::npos)
        << refused.error().message;
}

TEST(CheckMemory, CountsNothingThatIsOnAGpu) {
    Plan plan;
    plan.devices.resize(1);
    plan.devices[0].facts.architecture = "sm_90";
    plan.devices[0].arena.planned_bytes = 90 * kGiB;
    plan.host.arena.planned_bytes = kGiB;
    EXPECT_TRUE(check_memory(plan, 4 * kGiB));
}

TEST(CountGpus, GoesByTheDriverAndTheEnvironment) {
    const test::TemporaryFolder root;
    EXPECT_EQ(count_gpus(root.file(""), nullptr), 0u);
    for (const char* bus : {"0000:17:00.0", "0000:65:00.0"}) {
        std::filesystem::create_directories(root.file("proc/driver/nvidia/gpus/") + bus);
    }
    EXPECT_EQ(count_gpus(root.file(""), nullptr), 2u);
    EXPECT_EQ(count_gpus(root.file(""), ""), 0u);
    EXPECT_EQ(count_gpus(root.file(""), "-1"), 0u);
}

TEST(TurnSummary, PutsMeasuredBesidePredicted) {
    const TurnTally tally{
        .fed_tokens = 28,
        .prefill_seconds = 0.1,
        .generated_tokens = 101,
        .decoded_tokens = 100,
        .decode_seconds = 20,
        .stop = StopReason::max_tokens,
        .experts = ExpertTraffic{.hits = 3301, .misses = 2, .copied_bytes = kGiB}};
    EXPECT_EQ(turn_summary(tally, {.decode_tokens_per_s = 6, .prefill_tokens_per_s = 400}),
              "prompt 28 tokens, 280 tokens/s (predicted 400); generated 101 tokens, 5.0 tokens/s "
              "(predicted 6.0), token limit; experts 3,301 hits, 2 misses, 1.00 GiB copied");
}

TEST(RowFile, HoldsTheRowsAndNothingElse) {
    const test::TemporaryFolder folder;
    Result<RowFile> file = RowFile::create(folder.file("rows"));
    ASSERT_TRUE(file);
    const float row[] = {1.5f, -2.0f};
    ASSERT_TRUE(file->write(row));
    ASSERT_TRUE(file->write(row));
    ASSERT_TRUE(file->close());
    const std::string bytes = test::read_file(folder.file("rows"));
    const std::string one(reinterpret_cast<const char*>(row), sizeof row);
    EXPECT_EQ(bytes, one + one);
}

TEST(RowFile, TellsWhereTheDiskIsFullOrThePathIsNone) {
    EXPECT_EQ(RowFile::create("/nonexistent/rows").error().kind, ErrorKind::bad_file);
    Result<RowFile> full = RowFile::create("/dev/full");
    ASSERT_TRUE(full);
    const float row[] = {1.5f};
    static_cast<void>(full->write(row));
    const Status closed = full->close();
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace plimsoll
