#pragma once

// Dots of any weight type with float32 inputs. Included only by the leaf files.

#include "kernels/cpu/decode_impl.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Rows whose decoded elements are held at once. A dot has one chain of 16 lanes; four rows and two
/// tokens give the eight chains that hide the latency of a fused multiply-add.
constexpr std::uint32_t kRowsAtOnce = 4;

/// One step of kStep (or fewer) elements for four rows and n_tokens_at_once tokens.
template <int n_tokens_at_once>
void dot_step(const float (&weights)[kRowsAtOnce][kStep], const float* const* inputs,
              std::uint32_t n, Lanes (*sums)[kRowsAtOnce]) {
    Lanes acc[n_tokens_at_once][kRowsAtOnce];
    for (int t = 0; t < n_tokens_at_once; ++t)
        for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) acc[t][r] = sums[t][r];
    const std::uint32_t whole = n / 16 * 16;
    for (std::uint32_t i = 0; i < whole; i += 16) {
        Lanes w[kRowsAtOnce];
        for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) w[r] = load_lanes(weights[r] + i);
        for (int t = 0; t < n_tokens_at_once; ++t) {
            const Lanes x = load_lanes(inputs[t] + i);
            for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) acc[t][r] = fma(w[r], x, acc[t][r]);
        }
    }
    if (whole < n) {
        for (int t = 0; t < n_tokens_at_once; ++t) {
            const Lanes x = load_tail(inputs[t] + whole, n - whole);
            for (std::uint32_t r = 0; r < kRowsAtOnce; ++r)
                acc[t][r] = fma(load_tail(weights[r] + whole, n - whole), x, acc[t][r]);
        }
    }
    for (int t = 0; t < n_tokens_at_once; ++t)
        for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) sums[t][r] = acc[t][r];
}

template <DecodeStep decode_step>
void dot_f32(const DotTile& tile) {
    float weights[kRowsAtOnce][kStep];
    Lanes sums[kTokenTile][kRowsAtOnce];
    for (std::uint32_t first_row = 0; first_row < tile.n_rows; first_row += kRowsAtOnce) {
        const std::uint32_t rows_left = tile.n_rows - first_row;
        const std::uint32_t n_rows = rows_left < kRowsAtOnce ? rows_left : kRowsAtOnce;
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            for (std::uint32_t r = 0; r < kRowsAtOnce; ++r) sums[t][r] = zero_lanes();
        // Rows past the last are multiplied too, and their sums dropped; they must not hold noise
        // that traps.
        if (n_rows < kRowsAtOnce) std::memset(weights, 0, sizeof(weights));
        for (std::uint32_t first = 0; first < tile.n_in; first += kStep) {
            const std::uint32_t left = tile.n_in - first;
            const std::uint32_t n = left < kStep ? left : kStep;
            for (std::uint32_t r = 0; r < n_rows; ++r)
                decode_step(tile.weight + (first_row + r) * tile.row_bytes, first, n, weights[r]);
            const float* inputs[kTokenTile];
            for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
                inputs[t] = static_cast<const float*>(tile.inputs[t]) + first;
            std::uint32_t t = 0;
            for (; t + 2 <= tile.n_tokens; t += 2) dot_step<2>(weights, inputs + t, n, sums + t);
            if (t < tile.n_tokens) dot_step<1>(weights, inputs + t, n, sums + t);
        }
        for (std::uint32_t t = 0; t < tile.n_tokens; ++t)
            for (std::uint32_t r = 0; r < n_rows; ++r)
                tile.out[t * kRowTile + first_row + r] = sum_lanes(sums[t][r]);
    }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
