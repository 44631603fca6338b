#include "kernels/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace plimsoll::kernels {

void check_failed(const char* file, int line, const char* condition, const char* detail) {
    std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, condition, detail);
    std::abort();
}

}  // namespace plimsoll::kernels
