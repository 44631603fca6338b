#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/result.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll {

/// Token ids given as text: a JSON object with an array "tokens" (a golden case), or ids separated
/// by white space. Each must be in [0, vocab_size). Errors name `source` and the position, from 0,
/// of the id at fault.
[[nodiscard]] Result<std::vector<TokenId>> parse_tokens(std::string_view text,
                                                        const std::string& source,
                                                        std::uint32_t vocab_size);

/// `parse_tokens` of a file of at most 64 MiB.
[[nodiscard]] Result<std::vector<TokenId>> read_token_file(const std::string& path,
                                                           std::uint32_t vocab_size);

}  // namespace plimsoll
