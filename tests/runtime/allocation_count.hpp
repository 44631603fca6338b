#pragma once

#include <cstdint>

namespace plimsoll::test {

/// Calls of operator new and, but for sanitizer builds, of malloc, calloc and realloc by any thread
/// of this program so far.
std::uint64_t allocation_count();

}  // namespace plimsoll::test
