#include "tools/known_cards.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "planner/units.hpp"
#include "tests/cli/temporary_folder.hpp"

namespace plimsoll {
namespace {

DeviceFacts card(std::uint64_t total_bytes) {
    return {.architecture = "sm_90",
            .total_bytes = total_bytes,
            .memory_bandwidth_bytes_per_s = 4e12,
            .fp16_flops_per_s = 1e15};
}

DeviceFacts known_card(std::uint64_t total_bytes, double decode_share) {
    DeviceFacts known = card(total_bytes);
    known.memory_bandwidth_bytes_per_s = 5e12;
    known.decode_bandwidth_share = decode_share;
    known.prefill_compute_share = 0.3;
    return known;
}

TEST(KnownCards, GiveTheirSharesToTheCardTheyAre) {
    DeviceFacts device = card(1'000 * kMiB);
    const DeviceFacts known[] = {known_card(995 * kMiB, 0.5), known_card(999 * kMiB, 0.6)};
    adopt_shares(device, known);
    EXPECT_DOUBLE_EQ(device.decode_bandwidth_share, 0.75) << "of the lower rate";
    EXPECT_DOUBLE_EQ(device.prefill_compute_share, 0.3);
    const DeviceFacts kept = device;
    const DeviceFacts other[] = {known_card(1'000 * kMiB, 0.1)};
    adopt_shares(device, other);
    EXPECT_EQ(device, kept);
}

TEST(KnownCards, GiveNothingToAnother) {
    DeviceFacts device = card(1'000 * kMiB);
    const DeviceFacts before = device;
    DeviceFacts older = known_card(1'000 * kMiB, 0.6);
    older.architecture = "sm_80";
    const DeviceFacts known[] = {known_card(980 * kMiB, 0.6), older};
    adopt_shares(device, known);
    EXPECT_EQ(device, before);
}

TEST(KnownCards, NeverReachMoreThanAllOfARate) {
    DeviceFacts device = card(1'000 * kMiB);
    const DeviceFacts known[] = {known_card(1'000 * kMiB, 0.9)};
    adopt_shares(device, known);
    EXPECT_EQ(device.decode_bandwidth_share, 1);
}

TEST(KnownCards, AreTheFilesThatWereMeasured) {
    const test::TemporaryFolder folder;
    std::filesystem::create_directory(folder.file("devices"));
    const std::string head =
        "name: x\ndevices:\n  - name: cuda:0\n    total_bytes: 8GiB\n"
        "    memory_bandwidth_bytes_per_s: 1e12\n";
    std::ofstream(folder.file("devices/plain-8gb.yaml")) << head;
    std::ofstream(folder.file("devices/measured-8gb.yaml"))
        << head << "    decode_bandwidth_share: 0.7\n";
    std::ofstream(folder.file("devices/broken-8gb.yaml")) << "nonsense";
    const std::vector<DeviceFacts> cards = measured_cards(folder.file(""));
    ASSERT_EQ(cards.size(), 1u);
    EXPECT_EQ(cards[0].decode_bandwidth_share, 0.7);
}

}  // namespace
}  // namespace plimsoll
