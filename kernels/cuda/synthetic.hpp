#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"

/// Weights of a synthetic model, made on the device where they are used: no file of their size has
/// to be read. runtime/synthetic.cpp makes the same bytes on the CPU, and defines them.
namespace plimsoll::kernels::cuda {

/// Blocks of random words with fixed scales, plain numbers, or a routing table.
enum class SyntheticKind : std::uint8_t { blocks, f32, f16, bf16, expert_ids };

/// All that a tensor's bytes depend on but their position.
struct SyntheticRecipe {
    std::uint64_t word_base = 0;  // of the tensor's stream of words
    SyntheticKind kind = SyntheticKind::blocks;
    std::uint32_t unit_bytes = 0;  // of a block, of a number, of the ids of a token
    std::uint32_t n_experts = 0;   // of a routing table: a power of two
    double center = 0;             // numbers are center + amplitude * r, r in [-1, 1)
    double amplitude = 0;
    std::uint32_t n_scales = 0;  // of a block
    std::uint32_t scale_offset_bytes[2] = {};
    std::uint16_t scale_bits[2] = {};
};

/// Units [first_unit, first_unit + n_units) of a tensor, as a file would have them.
struct SyntheticParams {
    SyntheticRecipe recipe;
    std::uint64_t first_unit;
    std::uint64_t n_units;
    void* output;  // aligned to 8 bytes
};
void make_synthetic(const SyntheticParams& params, const Launch& launch);

}  // namespace plimsoll::kernels::cuda
