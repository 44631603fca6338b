#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cuda/synthetic.hpp"
#include "planner/model.hpp"

namespace plimsoll {

/// Word i of the stream that `seed` and `name` determine: splitmix64 as a counter, so that any word
/// can be made alone and by any thread.
///
///     base = FNV1a64(name) xor (seed * 0x9E3779B97F4A7C15)
class WordStream {
public:
    WordStream(std::uint64_t seed, std::string_view name);

    [[nodiscard]] std::uint64_t operator[](std::uint64_t index) const {
        std::uint64_t z = base_ + (index + 1) * kGamma;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    [[nodiscard]] std::uint64_t base() const { return base_; }

private:
    static constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15u;

    std::uint64_t base_;
};

/// The weights of one tensor of a synthetic model, a pure function of seed, name and position.
/// Their scale is such that activations stay near 1 through any number of layers; their meaning is
/// noise.
class SyntheticTensor {
public:
    /// `n_experts` matters for routing tables alone, whose ids lie below it.
    SyntheticTensor(std::uint64_t seed, const Tensor& tensor, std::uint32_t n_experts);

    /// The bytes [offset_bytes, offset_bytes + out.size()) of the tensor's storage, which the range
    /// does not leave.
    void fill(std::uint64_t offset_bytes, std::span<std::byte> out) const;

    /// The same for a GPU to make them by (kernels/cuda/synthetic.hpp).
    [[nodiscard]] kernels::cuda::SyntheticRecipe recipe() const;

private:
    /// A half at a fixed place of every block.
    struct Scale {
        std::uint32_t offset_bytes = 0;
        std::uint16_t bits = 0;
    };

    void fill_unit(std::uint64_t index, std::byte* out) const;
    void fill_block(std::uint64_t index, std::byte* out) const;
    void fill_element(std::uint64_t index, std::byte* out) const;
    void fill_expert_ids(std::uint64_t token, std::byte* out) const;

    WordStream words_;
    TensorType type_;
    std::uint64_t unit_bytes_ = 0;  // what is made at once: an element, a block, the ids of a token
    std::uint64_t n_experts_ = 0;
    double center_ = 0;  // of plain numbers
    double amplitude_ = 0;
    std::array<Scale, 2> scales_{};  // of blocks
    std::size_t scale_count_ = 0;
};

}  // namespace plimsoll
