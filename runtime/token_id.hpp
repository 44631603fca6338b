#pragma once

#include <cstdint>

namespace plimsoll {

/// Row of the embedding table and column of the logits. Signed 32 bits, as kernels read it;
/// negative ids do not occur.
using TokenId = std::int32_t;

}  // namespace plimsoll
