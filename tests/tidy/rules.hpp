#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::test {

/// Something in a source file that the rules of this project do not allow, and what to do instead.
struct Finding {
    std::string path;        // from the source root: "planner/pack.cpp"
    std::uint32_t line = 0;  // from 1; 0 for a file as a whole
    std::string message;

    bool operator==(const Finding&) const = default;
};

/// "planner/pack.cpp:12: message".
[[nodiscard]] std::string describe(const Finding& finding);

/// Every finding of one source file. `path` decides which rules hold: who may include whom, and
/// where a call may be made.
[[nodiscard]] std::vector<Finding> check_source(std::string_view path, std::string_view text);

/// `text` with what is in comments, strings and characters replaced by spaces, so that words there
/// are not taken for code. Lines keep their numbers and lengths.
[[nodiscard]] std::string code_of(std::string_view text);

}  // namespace plimsoll::test
