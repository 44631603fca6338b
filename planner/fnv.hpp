#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace plimsoll {

/// FNV-1a, 64 bits: digests that tell files and plans apart. Not for secrets.
class Fnv1a64 {
public:
    constexpr Fnv1a64& add(std::string_view bytes) {
        for (const char byte : bytes) step(static_cast<unsigned char>(byte));
        return *this;
    }
    /// The eight bytes of a number, the lowest first.
    constexpr Fnv1a64& add(std::uint64_t number) {
        for (int shift = 0; shift < 64; shift += 8) step(number >> shift & 0xff);
        return *this;
    }
    constexpr Fnv1a64& add(float number) {
        return add(std::uint64_t{std::bit_cast<std::uint32_t>(number)});
    }
    [[nodiscard]] constexpr std::uint64_t value() const { return value_; }

private:
    constexpr void step(std::uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

    std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace plimsoll
