#include "tests/planner/golden_plans.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace plimsoll::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// Lines that differ, kept above made, at equal positions.
std::string difference(const std::string& kept, const std::string& made) {
    const std::vector<std::string> before = lines_of(kept), after = lines_of(made);
    std::string out;
    for (std::size_t at = 0; at < std::max(before.size(), after.size()); ++at) {
        const std::string* old_line = at < before.size() ? &before[at] : nullptr;
        const std::string* new_line = at < after.size() ? &after[at] : nullptr;
        if (old_line && new_line && *old_line == *new_line) continue;
        if (old_line) out += "  - " + *old_line + "\n";
        if (new_line) out += "  + " + *new_line + "\n";
    }
    return out;
}

TEST(GoldenPlans, AreStillWhatThePlannerMakes) {
    const std::vector<GoldenPlan> plans = make_golden_plans(PLIMSOLL_CONFIGS);
    EXPECT_GE(plans.size(), 24u);
    for (const GoldenPlan& plan : plans) {
        std::ifstream file(PLIMSOLL_GOLDEN_PLANS "/" + plan.name + ".json", std::ios::binary);
        std::ostringstream kept;
        kept << file.rdbuf();
        EXPECT_EQ(difference(kept.str(), plan.text), "")
            << plan.name
            << ": if the change is meant, run `meson compile -C build golden-plans` and look at "
            << "the diff";
    }
}

TEST(GoldenPlans, AreEachMadeByACaseOfTheList) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_GOLDEN_PLANS))
        count += entry.path().extension() == ".json" ? 1 : 0;
    EXPECT_EQ(count, make_golden_plans(PLIMSOLL_CONFIGS).size()) << "a kept plan has lost its case";
}

}  // namespace
}  // namespace plimsoll::test
