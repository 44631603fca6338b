#pragma once

#include <random>
#include <string>
#include <vector>

namespace plimsoll::test {

/// `text` spoiled in one to four places: bits, bytes and numbers changed, pieces dropped, repeated,
/// or taken from one of `others`. Equal generators give equal results.
std::string mutated(std::string text, const std::vector<std::string>& others,
                    std::mt19937_64& random);

}  // namespace plimsoll::test
