#include <algorithm>

#include "planner/check.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace plimsoll::test {

void check_message(std::string_view message, std::string_view start) {
    // A line that lists all that a model lacks, over the layers that lack it, is the longest.
    constexpr std::size_t kMessageBytesMax = 64 * 1024;
    const auto is_control = [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    };
    PLIMSOLL_CHECK(message.starts_with(start), message);
    PLIMSOLL_CHECK(message.size() > start.size(), message);
    PLIMSOLL_CHECK(message.size() <= kMessageBytesMax, message.substr(0, 200));
    PLIMSOLL_CHECK(std::none_of(message.begin(), message.end(), is_control), message);
}

}  // namespace plimsoll::test
