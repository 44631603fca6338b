#include "tools/known_cards.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "planner/result.hpp"
#include "tools/environment.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

std::uint64_t distance_bytes(const DeviceFacts& a, const DeviceFacts& b) {
    return std::max(a.total_bytes, b.total_bytes) - std::min(a.total_bytes, b.total_bytes);
}

bool is_measured(const DeviceFacts& device) {
    return device.decode_bandwidth_share > 0 || device.prefill_compute_share > 0;
}

/// A share of one rate as one of another.
double rescaled(double share, double from_rate, double to_rate) {
    return to_rate > 0 ? std::min(1.0, share * from_rate / to_rate) : 0;
}

}  // namespace

std::vector<DeviceFacts> measured_cards(const std::string& config_dir) {
    std::vector<DeviceFacts> cards;
    for (const std::string& name : device_names(config_dir)) {
        const std::string path = config_dir + "/devices/" + name + ".yaml";
        const Result<std::string> text = read_text_file(path);
        const Result<MachineFacts> machine = text ? parse_machine(*text, path) : text.error();
        // A file that cannot be read is told of where it is named.
        if (!machine) continue;
        std::copy_if(machine->devices.begin(), machine->devices.end(), std::back_inserter(cards),
                     is_measured);
    }
    return cards;
}

void adopt_shares(DeviceFacts& device, std::span<const DeviceFacts> known) {
    if (is_measured(device)) return;
    const DeviceFacts* nearest = nullptr;
    for (const DeviceFacts& card : known) {
        if (card.architecture != device.architecture) continue;
        if (distance_bytes(card, device) > card.total_bytes / 100) continue;
        if (nearest == nullptr || distance_bytes(card, device) < distance_bytes(*nearest, device))
            nearest = &card;
    }
    if (nearest == nullptr) return;
    device.decode_bandwidth_share =
        rescaled(nearest->decode_bandwidth_share, nearest->memory_bandwidth_bytes_per_s,
                 device.memory_bandwidth_bytes_per_s);
    device.prefill_compute_share = rescaled(nearest->prefill_compute_share,
                                            nearest->fp16_flops_per_s, device.fp16_flops_per_s);
}

}  // namespace plimsoll
