#pragma once

namespace plimsoll::kernels {

/// Prints file, line, the condition and `detail` to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* detail);

}  // namespace plimsoll::kernels

/// Stops at a caller's bug, in every build type. The kernels' own, since they include no other
/// folder.
#define PLIMSOLL_KERNEL_CHECK(condition, detail)                                         \
    do {                                                                                 \
        if (!(condition)) [[unlikely]]                                                   \
            ::plimsoll::kernels::check_failed(__FILE__, __LINE__, #condition, (detail)); \
    } while (false)
