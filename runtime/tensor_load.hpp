#pragma once

#include <cstddef>
#include <cstdint>

#include "planner/model.hpp"

namespace plimsoll {

/// Bytes of a tensor's storage and where in memory they belong.
struct TensorLoad {
    const Model* model = nullptr;    // whose file
    const Tensor* tensor = nullptr;  // of that model
    std::uint64_t offset_bytes = 0;  // from the tensor's start
    std::uint64_t size_bytes = 0;
    std::byte* destination = nullptr;

    [[nodiscard]] std::uint64_t file_offset_bytes() const {
        return tensor->file_offset_bytes + offset_bytes;
    }
};

}  // namespace plimsoll
