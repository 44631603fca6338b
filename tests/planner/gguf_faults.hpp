#pragma once

#include <span>

#include "tests/planner/gguf_bytes.hpp"

namespace plimsoll::test {

/// One way to spoil a header, valid or empty.
struct GgufFault {
    const char* name;
    const char* told;  // what the refusal must name: the key, the tensor or the field
    void (*spoil)(RawHeader& header);
};

[[nodiscard]] std::span<const GgufFault> gguf_faults();

}  // namespace plimsoll::test
