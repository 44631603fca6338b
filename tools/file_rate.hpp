#pragma once

#include <string>

#include "planner/result.hpp"

namespace plimsoll {

/// How fast a file is read in the way models are loaded onto a GPU, and which way that is.
struct FileRate {
    double read_bytes_per_s = 0;
    std::string how;  // "io_uring, O_DIRECT"
};

/// Reads the file from its start, for three seconds at most, through 64 MiB. Error, kind io.
[[nodiscard]] Result<FileRate> measure_file(const std::string& path);

}  // namespace plimsoll
