#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "planner/machine.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> device_files() {
    std::vector<fs::path> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(PLIMSOLL_CONFIGS "/devices"))
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

MachineFacts read_machine(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    const Result<MachineFacts> machine = parse_machine(text.str(), path.filename().string());
    EXPECT_TRUE(machine.ok()) << (machine.ok() ? "" : machine.error().message);
    return machine.ok() ? *machine : MachineFacts{};
}

/// What a file must name the origin of: every figure that is not zero.
std::vector<std::string> figures_of(const MachineFacts& machine) {
    std::vector<std::string> figures;
    for (const DeviceFacts& device : machine.devices)
        for (const auto& [name, value] :
             {std::pair("total_bytes", static_cast<double>(device.total_bytes)),
              {"overhead_bytes", static_cast<double>(device.overhead_bytes)},
              {"gemm_workspace_bytes", static_cast<double>(device.gemm_workspace_bytes)},
              {"memory_bandwidth_bytes_per_s", device.memory_bandwidth_bytes_per_s},
              {"pcie_bandwidth_bytes_per_s", device.pcie_bandwidth_bytes_per_s},
              {"fp16_flops_per_s", device.fp16_flops_per_s},
              {"int8_ops_per_s", device.int8_ops_per_s},
              {"decode_bandwidth_share", device.decode_bandwidth_share},
              {"prefill_compute_share", device.prefill_compute_share}})
            if (value != 0) figures.push_back(name);
    figures.push_back("host_memory_bandwidth_bytes_per_s");
    figures.push_back("nvme_read_bytes_per_s");
    return figures;
}

TEST(DeviceFiles, CoverTheCardsPeopleOwn) { EXPECT_GE(device_files().size(), 18u); }

TEST(DeviceFiles, AreNamedAfterTheMachineTheyDescribe) {
    for (const fs::path& path : device_files()) {
        SCOPED_TRACE(path.filename());
        EXPECT_EQ(path.extension(), ".yaml");
        EXPECT_EQ(read_machine(path).name, path.stem());
        EXPECT_TRUE(path.stem().string().ends_with("gb"));
    }
}

TEST(DeviceFiles, SayHowManyGbInTheirNameAsTheDriverReports) {
    for (const fs::path& path : device_files()) {
        SCOPED_TRACE(path.filename());
        const std::string name = path.stem();
        const double label_gb = std::stod(name.substr(name.rfind('-') + 1));
        for (const DeviceFacts& device : read_machine(path).devices) {
            // A driver reports what ECC, firmware and the display leave: never more than is on the
            // card.
            const double total_gib = static_cast<double>(device.total_bytes) / kGiB;
            EXPECT_LE(total_gib, label_gb);
            EXPECT_GE(total_gib, label_gb * 0.9);
        }
    }
}

TEST(DeviceFiles, HoldFiguresThatCanBe) {
    for (const fs::path& path : device_files()) {
        SCOPED_TRACE(path.filename());
        const MachineFacts machine = read_machine(path);
        EXPECT_FALSE(machine.description.empty());
        EXPECT_FALSE(machine.is_cpu());
        EXPECT_EQ(machine.host_available_bytes, 0u) << "belongs to the machine the card sits in";
        EXPECT_GT(machine.host_memory_bandwidth_bytes_per_s, 10e9);
        EXPECT_GT(machine.nvme_read_bytes_per_s, 1e9);
        for (const DeviceFacts& device : machine.devices) {
            EXPECT_TRUE(device.architecture.starts_with("sm_"));
            EXPECT_GT(device.total_bytes, device.overhead_bytes + device.gemm_workspace_bytes);
            EXPECT_GE(device.overhead_bytes, 300 * kMiB);
            EXPECT_GT(device.memory_bandwidth_bytes_per_s, device.pcie_bandwidth_bytes_per_s);
            EXPECT_EQ(device.pcie_bandwidth_bytes_per_s == 0, machine.unified_memory);
            EXPECT_GT(device.fp16_flops_per_s, 10e12);
            EXPECT_GT(device.int8_ops_per_s, device.fp16_flops_per_s);
        }
    }
}

TEST(DeviceFiles, NameTheSourceOfEveryFigureAndOfNothingElse) {
    for (const fs::path& path : device_files()) {
        SCOPED_TRACE(path.filename());
        const MachineFacts machine = read_machine(path);
        std::vector<std::string> figures = figures_of(machine);
        for (const std::string& figure : figures)
            EXPECT_TRUE(machine.sources.contains(figure)) << "no source of " << figure;
        // A shared-memory machine says why it has no link.
        figures.push_back("pcie_bandwidth_bytes_per_s");
        for (const auto& [figure, origin] : machine.sources) {
            EXPECT_NE(std::find(figures.begin(), figures.end(), figure), figures.end()) << figure;
            EXPECT_FALSE(origin.empty()) << figure;
        }
    }
}

TEST(DeviceFiles, TakeMeasuredSharesFromAboveNothingToAll) {
    const auto with = [](const std::string& line) {
        return parse_machine(
            "name: card\ndevices:\n  - name: cuda:0\n    total_bytes: 8GiB\n"
            "    memory_bandwidth_bytes_per_s: 1e12\n    " +
                line + "\n",
            "card.yaml");
    };
    const Result<MachineFacts> decode = with("decode_bandwidth_share: 0.75");
    ASSERT_TRUE(decode.ok()) << decode.error().message;
    EXPECT_EQ(decode->devices[0].decode_bandwidth_share, 0.75);
    EXPECT_EQ(decode->devices[0].prefill_compute_share, 0);
    const Result<MachineFacts> prefill = with("prefill_compute_share: 1");
    ASSERT_TRUE(prefill.ok()) << prefill.error().message;
    EXPECT_EQ(prefill->devices[0].prefill_compute_share, 1);
    for (const char* line :
         {"decode_bandwidth_share: 0", "decode_bandwidth_share: 1.01", "prefill_compute_share: -1",
          "prefill_compute_share: half", "decode_share: 0.5"}) {
        const Result<MachineFacts> refused = with(line);
        ASSERT_FALSE(refused.ok()) << line;
        EXPECT_NE(refused.error().message.find("card.yaml:6"), std::string::npos)
            << refused.error().message;
    }
}

TEST(DeviceFiles, AgreeWithWhatIsKnownOfFreeMemory) {
    // Total and free memory in MiB, as drivers report them before anything of a model is loaded.
    struct Known {
        const char* name;
        std::uint64_t total_mib;
        std::uint64_t free_mib;
    };
    constexpr Known kKnown[] = {
        {"rtx-4060-laptop-8gb", 8188, 7600}, {"rtx-3060-12gb", 12227, 11600},
        {"rtx-4090-24gb", 24126, 23700},     {"2x-rtx-5090-32gb", 32607, 31900},
        {"rtx-pro-6000-96gb", 97249, 96800}, {"h200-141gb", 143156, 142630},
    };
    for (const Known& known : kKnown) {
        SCOPED_TRACE(known.name);
        const MachineFacts machine = read_machine(fs::path(PLIMSOLL_CONFIGS "/devices") /
                                                  (known.name + std::string(".yaml")));
        for (const DeviceFacts& device : machine.devices) {
            EXPECT_EQ(device.total_bytes, known.total_mib * kMiB);
            EXPECT_EQ(device.total_bytes - device.overhead_bytes, known.free_mib * kMiB);
        }
    }
}

}  // namespace
}  // namespace plimsoll
