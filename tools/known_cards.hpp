#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/machine.hpp"

namespace plimsoll {

/// The devices of a configuration folder's device files that carry measured shares of their rates.
[[nodiscard]] std::vector<DeviceFacts> measured_cards(const std::string& config_dir);

/// Gives a visible GPU without shares those of the known card whose architecture is its own and
/// whose memory is within 1 %, the nearest. A share is of the known card's rate, so it is scaled to
/// the rate that the GPU was measured to have.
void adopt_shares(DeviceFacts& device, std::span<const DeviceFacts> known);

}  // namespace plimsoll
