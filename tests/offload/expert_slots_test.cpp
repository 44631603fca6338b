#include "offload/expert_slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <set>
#include <vector>

namespace plimsoll::offload {
namespace {

constexpr std::uint64_t kSlotBytes = 64;

struct Fixture {
    std::vector<std::byte> memory;
    ExpertSlots slots;

    Fixture(std::size_t n_slots, std::uint32_t n_items)
        : memory(n_slots * kSlotBytes), slots(memory, kSlotBytes, n_items) {}
};

TEST(ExpertSlots, ReplacesTheItemUsedLongestAgo) {
    Fixture pool(2, 8);
    const auto use = [&](std::uint32_t item) {
        const auto place = pool.slots.acquire(item);
        pool.slots.release_all();
        return place.value().is_hit;
    };
    EXPECT_FALSE(use(1));
    EXPECT_FALSE(use(2));
    EXPECT_TRUE(use(1));   // now 2 is the older one
    EXPECT_FALSE(use(3));  // takes the place of 2
    EXPECT_TRUE(use(1));
    EXPECT_FALSE(use(2));
}

TEST(ExpertSlots, GivesNoSlotWhileAllAreHeldAndKeepsWhatIsHeldInPlace) {
    Fixture pool(3, 8);
    const auto a = pool.slots.acquire(0), b = pool.slots.acquire(1), c = pool.slots.acquire(2);
    ASSERT_TRUE(a && b && c);
    EXPECT_EQ((std::set{a->slot, b->slot, c->slot}.size()), 3u);
    EXPECT_FALSE(pool.slots.acquire(3));
    EXPECT_EQ(pool.slots.acquire(1)->slot, b->slot);  // held items can be had again
    EXPECT_FALSE(pool.slots.acquire(3));
    pool.slots.release_all();
    EXPECT_TRUE(pool.slots.acquire(3));
    EXPECT_TRUE(pool.slots.acquire(1)->is_hit);
}

TEST(ExpertSlots, APoolOfNoBytesHasNoSlots) {
    Fixture pool(0, 8);
    EXPECT_EQ(pool.slots.slot_count(), 0u);
    EXPECT_FALSE(pool.slots.acquire(0));
}

TEST(ExpertSlots, FollowsANaiveListOfRecentItemsThroughRandomUse) {
    const std::uint32_t seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 200; ++round) {
        const std::size_t n_slots = 1 + random() % 9;
        Fixture pool(n_slots, 24);
        std::list<std::uint32_t> recent;  // newest first
        std::set<std::uint32_t> held;
        for (int step = 0; step < 300; ++step) {
            if (random() % 5 == 0) {
                pool.slots.release_all();
                held.clear();
            }
            const auto item = static_cast<std::uint32_t>(random() % 24);
            const bool was_there = std::find(recent.begin(), recent.end(), item) != recent.end();
            const auto place = pool.slots.acquire(item);
            ASSERT_EQ(place.has_value(), was_there || held.size() < n_slots);
            if (!place) continue;
            ASSERT_EQ(place->is_hit, was_there);
            ASSERT_GE(place->slot, pool.memory.data());
            ASSERT_LE(place->slot + kSlotBytes, pool.memory.data() + pool.memory.size());
            if (place->is_hit) {
                ASSERT_EQ(static_cast<std::uint32_t>(*place->slot), item) << "moved";
            }
            *place->slot = static_cast<std::byte>(item);
            recent.remove(item);
            recent.push_front(item);
            if (recent.size() > n_slots) recent.pop_back();
            held.insert(item);
        }
    }
}

}  // namespace
}  // namespace plimsoll::offload
