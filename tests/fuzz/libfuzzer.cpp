// What libFuzzer calls, in a build with -Dfuzz=true.

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    plimsoll::test::fuzz_one({reinterpret_cast<const char*>(bytes), size});
    return 0;
}
