#pragma once

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "planner/pack.hpp"

namespace plimsoll::testing {

/// Reads `id,lower,upper,size` lines below a heading (see tests/data/minimalloc/README.md). Empty
/// where the file is missing or a line has another form.
inline std::vector<Buffer> read_allocation_csv(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    std::vector<Buffer> buffers;
    while (std::getline(file, line)) {
        Buffer buffer{.alignment_bytes = 1};
        char id[64];
        unsigned long long size_bytes = 0;
        if (std::sscanf(line.c_str(), "%63[^,],%u,%u,%llu", id, &buffer.lifetime.first_op,
                        &buffer.lifetime.last_op, &size_bytes) != 4)
            return {};
        buffer.name = id;
        buffer.size_bytes = size_bytes;
        buffers.push_back(std::move(buffer));
    }
    return buffers;
}

}  // namespace plimsoll::testing
