#include "planner/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace plimsoll {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
    std::fprintf(stderr, "plimsoll: internal error at %s:%d: %s: %.*s\n", file, line, condition,
                 static_cast<int>(detail.size()), detail.data());
    std::abort();
}

}  // namespace plimsoll
