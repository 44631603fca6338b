#include <cstdio>
#include <exception>
#include <fstream>

#include "tests/planner/golden_plans.hpp"

/// write_golden_plans CONFIG_DIR GOLDEN_DIR: writes every golden plan anew.
int main(int argc, char** argv) {
    if (argc != 3) return 2;
    try {
        for (const auto& plan : plimsoll::test::make_golden_plans(argv[1])) {
            std::ofstream file(std::string(argv[2]) + "/" + plan.name + ".json", std::ios::binary);
            file << plan.text;
            if (!file.flush()) return 1;
        }
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 1;
    }
    return 0;
}
