#pragma once

#include <string_view>

namespace plimsoll {

/// Prints file, line, the condition and `detail` (values with units) to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view detail);

}  // namespace plimsoll

/// Stops at a bug, in every build type. One condition per check; not for bad input.
#define PLIMSOLL_CHECK(condition, detail)                                       \
    do {                                                                        \
        if (!(condition)) [[unlikely]]                                          \
            ::plimsoll::check_failed(__FILE__, __LINE__, #condition, (detail)); \
    } while (false)
