#pragma once

#include <cstdint>

#include "planner/result.hpp"
#include "runtime/tokenizer.hpp"

namespace plimsoll {

/// A byte-level tokenizer of exactly `vocab_size` tokens: special tokens, at their published ids
/// where the vocabulary reaches so far, the 256 bytes, and for the rest runs of lower-case letters
/// with a merge each. An error where not even bytes and special tokens fit.
[[nodiscard]] Result<TokenizerTables> synthetic_tokenizer(std::uint32_t vocab_size);

}  // namespace plimsoll
