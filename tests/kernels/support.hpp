#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/ops.hpp"

/// Random data and naive double-precision references, written apart from the kernels.
namespace plimsoll::kernels::test {

/// splitmix64: the whole sequence follows from the seed that a failing test prints.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t word() {
        std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(word() % n); }
    float uniform(float amplitude = 1.0f) {
        return amplitude * (static_cast<float>(word() >> 40) / 8388608.0f - 1.0f);
    }
    /// Mostly ordinary, with zeros, equal values, very small and large ones between.
    float extreme() {
        switch (below(16)) {
            case 0: return 0.0f;
            case 1: return 0.5f;
            case 2: return -0.5f;
            case 3: return uniform(1e-30f);
            case 4: return uniform(1e-41f);
            case 5: return uniform(100.0f);
            default: return uniform();
        }
    }

private:
    std::uint64_t state_;
};

std::vector<float> uniform_values(Random& random, std::size_t n, float amplitude = 1.0f);
std::vector<float> extreme_values(Random& random, std::size_t n);

/// A weight matrix of random blocks whose half-precision scales keep weights near variance 1 /
/// n_in.
struct RandomWeight {
    std::vector<std::byte> bytes;
    WeightMatrix matrix;
    std::vector<double> values;  // [n_out, n_in] by the reference decoder

    RandomWeight(Random& random, WeightType type, std::uint32_t n_in, std::uint32_t n_out);
};

/// The reference decoder: one element of a row, straight from the format's description.
double reference_weight(WeightType type, const std::byte* row, std::uint32_t element);

inline const WeightType kAllTypes[] = {WeightType::f32,    WeightType::f16,  WeightType::bf16,
                                       WeightType::q8_0,   WeightType::q2_k, WeightType::q4_k,
                                       WeightType::iq2_xxs};

/// Every |a - b| within tolerance * (1 + |b|), NaN nowhere.
void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance);
/// The same bits.
void expect_same(const std::vector<float>& a, const std::vector<float>& b);

/// rms, sigmoid and rope in double.
std::vector<double> reference_rms(const std::vector<double>& x, const float* weight,
                                  double epsilon);
void reference_rope(double* tail, const std::vector<double>& frequencies, double position,
                    bool inverse);
inline double reference_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Bytes aligned to 256, as regions are.
struct Region {
    explicit Region(std::size_t n) : storage(n + 256) {}
    void* data() {
        const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
        return storage.data() + ((256 - address % 256) % 256);
    }
    std::vector<std::byte> storage;
};

}  // namespace plimsoll::kernels::test
