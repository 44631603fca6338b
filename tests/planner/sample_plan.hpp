#pragma once

#include "planner/plan.hpp"

namespace plimsoll::test {

/// A small valid plan with something in every part: two layers of four experts, of which layer 0
/// has three on the device and one on the host, and layer 1 one, one and two in the file.
[[nodiscard]] Plan sample_plan();

/// The same machine with a gigabyte too little.
[[nodiscard]] Plan refused_plan();

}  // namespace plimsoll::test
