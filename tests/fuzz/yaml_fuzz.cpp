// YAML, and the three kinds of files that people write in it: inventories, devices, profiles.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "planner/check.hpp"
#include "planner/inventory.hpp"
#include "planner/machine.hpp"
#include "planner/request.hpp"
#include "planner/yaml_tree.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/planning_check.hpp"

namespace plimsoll::test {
namespace {

constexpr const char* kSource = "fuzz.yaml";
constexpr const char* kMessageStart = "fuzz.yaml:";

bool use_inventory(const std::string& text) {
    const Result<Inventory> inventory = parse_inventory(text, kSource);
    if (!inventory) {
        check_message(inventory.error().message, kMessageStart);
        return false;
    }
    const Result<Model> model = model_from_inventory(*inventory);
    if (!model)
        check_message(model.error().message, "");
    else if (model->kind == ModelKind::main)
        check_planning(*model);
    return true;
}

bool use_machine(const std::string& text) {
    const Result<MachineFacts> machine = parse_machine(text, kSource);
    if (!machine) {
        check_message(machine.error().message, kMessageStart);
        return false;
    }
    PLIMSOLL_CHECK(!machine->devices.empty(), text);
    return true;
}

bool use_profile(const std::string& text) {
    const Result<Request> request = apply_profile(default_request(), text, kSource);
    if (!request) {
        check_message(request.error().message, kMessageStart);
        return false;
    }
    if (const Status consistent = check_request(*request); !consistent)
        check_message(consistent.error().message, "");
    return true;
}

}  // namespace

bool fuzz_one(std::string_view input) {
    const std::string text(input);
    const Result<YamlNode> tree = parse_yaml(text, kSource);
    if (!tree) check_message(tree.error().message, kMessageStart);
    // Each reader sees every input: one that is refused must be refused by all of them.
    const bool inventory = use_inventory(text);
    const bool machine = use_machine(text);
    const bool profile = use_profile(text);
    const bool accepted = inventory || machine || profile;
    PLIMSOLL_CHECK(tree.ok() || !accepted, text);
    return accepted;
}

std::vector<std::string> seed_inputs() {
    std::vector<std::string> seeds;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(PLIMSOLL_CONFIGS)) {
        if (entry.path().extension() != ".yaml") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    // A folder has no order of its own, and equal seeds must give equal runs.
    std::sort(seeds.begin(), seeds.end());
    return seeds;
}

}  // namespace plimsoll::test
