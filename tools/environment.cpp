#include "tools/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "planner/units.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// Share of available memory that the CPU engine's arena takes where --vram does not say; the
/// system and the page cache keep the rest.
constexpr std::uint64_t kCpuMemoryPercent = 80;

/// What two channels of DDR4-3200 stream to one program. An estimate: `--device FILE` can name a
/// measured one.
constexpr double kCpuBandwidthBytesPerS = 4e10;

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// The number after `key` in a file of "key value" lines, or nothing.
std::optional<std::uint64_t> keyed_number(const fs::path& path, std::string_view key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        std::uint64_t value = 0;
        if (words >> name >> value && name == key) return value;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
    std::istringstream words(first_line(path));
    std::uint64_t value = 0;
    if (words >> value) return value;
    return std::nullopt;  // absent, or "max"
}

/// What one group leaves: its limit less what it holds, where the page cache it could drop does not
/// count.
std::uint64_t group_room_bytes(const fs::path& group, const char* limit_name,
                               const char* usage_name, const char* cache_key) {
    const std::optional<std::uint64_t> limit = number_in(group / limit_name);
    if (!limit) return std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t usage = number_in(group / usage_name).value_or(0);
    const std::uint64_t cache = keyed_number(group / "memory.stat", cache_key).value_or(0);
    return saturating_sub(*limit, saturating_sub(usage, cache));
}

/// The tightest room of this process's control group and those above it, versions 2 and 1.
std::uint64_t control_group_room_bytes(const fs::path& root) {
    std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
    std::ifstream file(root / "proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool unified = controllers.empty();
        if (!unified && controllers != "memory") continue;
        const fs::path base = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
        for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
             group = group.parent_path()) {
            room = std::min(
                room, unified ? group_room_bytes(base / group, "memory.max", "memory.current",
                                                 "inactive_file")
                              : group_room_bytes(base / group, "memory.limit_in_bytes",
                                                 "memory.usage_in_bytes", "total_inactive_file"));
            if (group.empty()) break;
        }
    }
    return room;
}

/// Edits that turn one name into another (Levenshtein 1966), to find what was meant.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            row[j] =
                std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
            diagonal = above;
        }
    }
    return row[b.size()];
}

Error unknown_device(const std::string& name, const std::string& config_dir) {
    std::vector<std::string> names = device_names(config_dir);
    // A name that contains what was typed is nearer than any number of edits.
    const auto distance = [&](const std::string& other) {
        return other.find(name) != std::string::npos ? 0 : 1 + edit_distance(name, other);
    };
    std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return distance(a) < distance(b);
    });
    names.resize(std::min<std::size_t>(names.size(), 3));
    return {ErrorKind::usage,
            fmt::format("unknown device '{}': the closest are {}; cpu and a file's path also go",
                        name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")))};
}

/// The host arena as the only device. With --host-mem a second tier lies beside it, never in it.
MachineFacts this_machine_cpu(const Request& request) {
    const std::uint64_t host_bytes = request.host_bytes.value.value_or(0);
    const std::uint64_t left_bytes = saturating_sub(available_memory_bytes(), host_bytes);
    const std::uint64_t arena_bytes =
        request.vram_bytes.value.value_or(left_bytes / 100 * kCpuMemoryPercent);
    MachineFacts machine = cpu_machine(arena_bytes, kCpuBandwidthBytesPerS);
    machine.host_available_bytes = host_bytes;
    machine.host_source = host_bytes != 0 ? "--host-mem" : "none beside the device";
    return machine;
}

void add_host_memory(MachineFacts& machine, const Request& request) {
    machine.host_available_bytes =
        request.host_bytes.value.value_or(machine.unified_memory ? 0 : available_memory_bytes());
    machine.host_source = request.host_bytes.value ? "--host-mem" : "this machine";
}

}  // namespace

Result<std::string> find_config_dir() {
    std::vector<std::string> tried;
    const auto holds_configs = [&](const fs::path& path) {
        tried.push_back(path.string());
        std::error_code ignored;
        return fs::is_directory(path / "devices", ignored);
    };
    if (const char* named = std::getenv("PLIMSOLL_CONFIG_DIR"); named != nullptr) {
        if (holds_configs(named)) return std::string(named);
        return Error{ErrorKind::usage,
                     fmt::format("PLIMSOLL_CONFIG_DIR: '{}' holds no devices folder", named)};
    }
    std::error_code failed;
    const fs::path program = fs::read_symlink("/proc/self/exe", failed);
    if (!failed) {
        const fs::path installed = program.parent_path().parent_path() / "share/plimsoll";
        if (holds_configs(installed)) return installed.string();
    }
    if (holds_configs(PLIMSOLL_SOURCE_CONFIG_DIR)) return std::string(PLIMSOLL_SOURCE_CONFIG_DIR);
    return Error{ErrorKind::usage,
                 fmt::format("no configuration folder ({}): set PLIMSOLL_CONFIG_DIR",
                             fmt::join(tried, ", "))};
}

std::vector<std::string> device_names(const std::string& config_dir) {
    std::vector<std::pair<std::uint64_t, std::string>> sized;
    std::error_code failed;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(fs::path(config_dir) / "devices", failed)) {
        if (entry.path().extension() != ".yaml") continue;
        const Result<std::string> text = read_text_file(entry.path().string());
        const Result<MachineFacts> machine =
            text ? parse_machine(*text, entry.path().string()) : text.error();
        std::uint64_t total_bytes = 0;
        if (machine)
            for (const DeviceFacts& device : machine->devices) total_bytes += device.total_bytes;
        sized.emplace_back(total_bytes, entry.path().stem().string());
    }
    std::sort(sized.begin(), sized.end());
    std::vector<std::string> names;
    for (auto& [bytes, name] : sized) names.push_back(std::move(name));
    return names;
}

std::uint64_t available_memory_bytes(const std::string& root) {
    const std::optional<std::uint64_t> kib =
        keyed_number(fs::path(root) / "proc/meminfo", "MemAvailable:");
    if (!kib) return 0;
    return std::min(*kib * kKiB, control_group_room_bytes(root));
}

std::uint64_t total_memory_bytes(const std::string& root) {
    return keyed_number(fs::path(root) / "proc/meminfo", "MemTotal:").value_or(0) * kKiB;
}

std::size_t count_gpus(const std::string& root, const char* visible_devices) {
    const std::string_view visible = visible_devices == nullptr ? "all" : visible_devices;
    if (visible.empty() || visible.front() == '-') return 0;
    std::error_code failed;
    const fs::directory_iterator gpus(fs::path(root) / "proc/driver/nvidia/gpus", failed);
    return static_cast<std::size_t>(std::distance(begin(gpus), end(gpus)));
}

Result<MachineFacts> machine_of(const Request& request, const std::string& config_dir) {
    const std::string& name = request.device.value;
    if (name.empty() || name == "cpu") return this_machine_cpu(request);
    const fs::path known = fs::path(config_dir) / "devices" / (name + ".yaml");
    const bool is_path = name.find('/') != std::string::npos || name.ends_with(".yaml");
    std::error_code ignored;
    if (!is_path && !fs::exists(known, ignored)) return unknown_device(name, config_dir);
    const std::string path = is_path ? name : known.string();
    const Result<std::string> text = read_text_file(path);
    if (!text) return text.error();
    Result<MachineFacts> machine = parse_machine(*text, path);
    if (!machine) return machine.error();
    add_host_memory(*machine, request);
    return machine;
}

MachineFacts this_machine_gpus(const Request& request, std::vector<DeviceFacts> devices,
                               bool unified_memory) {
    MachineFacts machine = cpu_machine(0, kCpuBandwidthBytesPerS);
    machine.name = "this machine";
    machine.devices = std::move(devices);
    machine.unified_memory = unified_memory;
    add_host_memory(machine, request);
    return machine;
}

}  // namespace plimsoll
