#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/check.hpp"
#include "kernels/rope.hpp"
#include "kernels/types.hpp"

namespace plimsoll::kernels::cpu {

/// Cosines and sines of one position, shared by the heads of a token.
struct Rotation {
    float cosine[kRopeDimMax / 2];
    float sine[kRopeDimMax / 2];
    std::uint32_t n_pairs;
};

/// Angles in double: at position 2^20 a float32 angle is off by up to 0.03 rad. Inverse negates the
/// sines.
[[nodiscard]] inline Rotation make_rotation(const RopeTable& rope, std::uint64_t position,
                                            bool inverse) {
    PLIMSOLL_KERNEL_CHECK(rope.rope_dim <= kRopeDimMax, "rope_dim is above the largest supported");
    Rotation rotation;
    rotation.n_pairs = rope.rope_dim / 2;
    for (std::uint32_t i = 0; i < rotation.n_pairs; ++i) {
        const double angle = static_cast<double>(position) * rope.frequencies[i];
        rotation.cosine[i] = static_cast<float>(std::cos(angle));
        const auto sine = static_cast<float>(std::sin(angle));
        rotation.sine[i] = inverse ? -sine : sine;
    }
    return rotation;
}

/// Rotates the trailing dims of one head.
inline void rotate_tail(float* head, std::uint32_t head_dim, const Rotation& rotation) {
    float* tail = head + head_dim - 2 * rotation.n_pairs;
    for (std::uint32_t i = 0; i < rotation.n_pairs; ++i) {
        const float a = tail[2 * i];
        const float b = tail[2 * i + 1];
        tail[2 * i] = a * rotation.cosine[i] - b * rotation.sine[i];
        tail[2 * i + 1] = a * rotation.sine[i] + b * rotation.cosine[i];
    }
}

}  // namespace plimsoll::kernels::cpu
