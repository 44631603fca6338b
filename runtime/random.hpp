#pragma once

#include <cstdint>

namespace plimsoll {

/// xorshift64* (Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled": shifts 12, 25, 27). The same seed gives the same numbers on every machine.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed == 0 ? 0x9E3779B97F4A7C15ull : seed) {}

    [[nodiscard]] std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Dull;
    }

    /// In [0, 1), from the upper 24 bits: every value is exact in float32.
    [[nodiscard]] float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

private:
    std::uint64_t state_;
};

}  // namespace plimsoll
