#include "tests/planner/golden_plans.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "planner/plan.hpp"
#include "planner/units.hpp"

namespace plimsoll::test {
namespace {

constexpr std::uint64_t kHostBytes = 64 * kGiB;
constexpr const char* kMainModels[] = {"flash-q2", "flash-q4", "pro-q2"};
// One machine of each kind: small, middle, two cards, just enough, ample, unified.
constexpr const char* kMachines[] = {"rtx-3060-12gb",     "rtx-4090-24gb", "2x-rtx-5090-32gb",
                                     "rtx-pro-6000-96gb", "h200-141gb",    "gb10-128gb"};

template <class T>
T value_of(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(result).value();
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path.string());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

MachineFacts machine_named(const std::string& config_dir, const std::string& name) {
    const std::string path = config_dir + "/devices/" + name + ".yaml";
    MachineFacts machine = value_of(parse_machine(text_of(path), path));
    if (!machine.unified_memory) machine.host_available_bytes = kHostBytes;
    machine.host_source = "64 GiB";
    return machine;
}

std::string plan_text_of(const std::string& config_dir, const Request& request) {
    const Model model = value_of(load_model(request.model.value, config_dir));
    std::optional<Model> mtp;
    if (!request.mtp_model.value.empty())
        mtp = value_of(load_model(request.mtp_model.value, config_dir));
    const MachineFacts machine = machine_named(config_dir, request.device.value);
    return plan_to_json(value_of(make_plan(model, mtp ? &*mtp : nullptr, machine, request)));
}

}  // namespace

std::vector<GoldenPlan> make_golden_plans(const std::string& config_dir) {
    std::vector<GoldenPlan> plans;
    for (const char* model : kMainModels)
        for (const char* machine : kMachines) {
            Request request = default_request();
            request.model.set(model, Source::cli);
            request.device.set(machine, Source::cli);
            // The published draft head is Flash's.
            if (std::string_view(model).starts_with("flash"))
                request.mtp_model.set("flash-mtp", Source::cli);
            plans.push_back(
                {std::string(model) + "." + machine, plan_text_of(config_dir, request)});
        }
    for (const auto& entry : std::filesystem::directory_iterator(config_dir + "/profiles")) {
        const std::string path = entry.path().string();
        const Request request = value_of(apply_profile(default_request(), text_of(path), path));
        plans.push_back(
            {"profile." + entry.path().stem().string(), plan_text_of(config_dir, request)});
    }
    return plans;
}

}  // namespace plimsoll::test
