#include "runtime/synthetic.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/half.hpp"
#include "planner/check.hpp"
#include "planner/fnv.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little endian, and so are we");

/// Plain numbers are center + amplitude * r with r in [-1, 1). An amplitude of 0 stands for the
/// default, which gives every product of a row the variance of its input.
struct Spread {
    std::string_view part;  // of the tensor's name
    std::string_view ending;
    double center;
    double amplitude;
};
constexpr Spread kSpreads[] = {
    {"", "norm.weight", 1, 0.25},     {"hc_", "base.weight", 0, 0.5},
    {"hc_", "scale.weight", 1, 0.25}, {"", "_ape.weight", 0, 0.5},
    {"", "attn_sinks.weight", 0, 1},  {"", "exp_probs_b.bias", 0, 0.1},
    {"", "token_embd.weight", 0, 1},
};

constexpr std::string_view kHeadName = "output.weight";
constexpr double kHeadGain = 4;  // so that logits differ enough to be compared by rank

/// Where a block type keeps its halves, and their values for weights of variance 1 / row length:
/// the divisor is the standard deviation of the quants that random bytes make.
struct BlockScale {
    TensorType type;
    std::uint32_t offset_bytes;
    double multiplier;
    double divisor;
};
constexpr BlockScale kBlockScales[] = {
    {TensorType::q8_0, 0, 1, 73.9},     {TensorType::q2_k, 80, 1, 13.87},
    {TensorType::q2_k, 82, 1.5, 13.87}, {TensorType::q4_k, 0, 1, 258.3},
    {TensorType::q4_k, 2, 7.5, 258.3},  {TensorType::iq2_xxs, 0, 1, 53.36},
};

/// Nearest half of a double, ties to even. By way of the float that is rounded to odd, from which
/// the second rounding goes where one rounding would have gone.
std::uint16_t half_of(double value) {
    float narrow = static_cast<float>(value);
    if (static_cast<double>(narrow) != value) {
        if (std::abs(static_cast<double>(narrow)) > std::abs(value))
            narrow = std::nextafter(narrow, 0.0f);
        narrow = std::bit_cast<float>(std::bit_cast<std::uint32_t>(narrow) | 1u);
    }
    return kernels::f16_from_f32(narrow);
}

std::uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

bool is_block_type(TensorType type) { return info_of(type).block_elements > 1; }

}  // namespace

WordStream::WordStream(std::uint64_t seed, std::string_view name)
    : base_(Fnv1a64().add(name).value() ^ (seed * kGamma)) {}

SyntheticTensor::SyntheticTensor(std::uint64_t seed, const Tensor& tensor, std::uint32_t n_experts)
    : words_(seed, tensor.name), type_(tensor.type), n_experts_(n_experts) {
    const std::uint64_t row_elements = tensor.dims.front();
    unit_bytes_ = info_of(type_).block_bytes;
    if (type_ == TensorType::i32) {
        unit_bytes_ = row_elements * sizeof(std::int32_t);
        PLIMSOLL_CHECK(is_power_of_two(n_experts_),
                       "a routing table needs a power of two of experts");
        return;
    }
    const double gain = tensor.name == kHeadName ? kHeadGain : 1;
    const auto row_length = static_cast<double>(row_elements);
    if (is_block_type(type_)) {
        for (const BlockScale& row : kBlockScales)
            if (row.type == type_)
                scales_[scale_count_++] = {
                    row.offset_bytes,
                    half_of(row.multiplier * (gain / std::sqrt(row_length) / row.divisor))};
        return;
    }
    amplitude_ = gain * std::sqrt(3 / row_length);
    for (const Spread& spread : kSpreads) {
        if (!tensor.name.ends_with(spread.ending) ||
            tensor.name.find(spread.part) == std::string::npos)
            continue;
        center_ = spread.center;
        amplitude_ = spread.amplitude;
        break;
    }
}

void SyntheticTensor::fill(std::uint64_t offset_bytes, std::span<std::byte> out) const {
    std::uint64_t unit = offset_bytes / unit_bytes_;
    std::uint64_t skip_bytes = offset_bytes % unit_bytes_;
    std::vector<std::byte> partial;
    while (!out.empty()) {
        if (skip_bytes == 0 && out.size() >= unit_bytes_) {
            fill_unit(unit++, out.data());
            out = out.subspan(unit_bytes_);
            continue;
        }
        partial.resize(unit_bytes_);
        fill_unit(unit++, partial.data());
        const std::size_t taken = std::min<std::size_t>(unit_bytes_ - skip_bytes, out.size());
        std::memcpy(out.data(), partial.data() + skip_bytes, taken);
        out = out.subspan(taken);
        skip_bytes = 0;
    }
}

kernels::cuda::SyntheticRecipe SyntheticTensor::recipe() const {
    using kernels::cuda::SyntheticKind;
    kernels::cuda::SyntheticRecipe recipe{.word_base = words_.base(),
                                          .unit_bytes = static_cast<std::uint32_t>(unit_bytes_),
                                          .n_experts = static_cast<std::uint32_t>(n_experts_),
                                          .center = center_,
                                          .amplitude = amplitude_,
                                          .n_scales = static_cast<std::uint32_t>(scale_count_)};
    for (std::size_t scale = 0; scale < scale_count_; ++scale) {
        recipe.scale_offset_bytes[scale] = scales_[scale].offset_bytes;
        recipe.scale_bits[scale] = scales_[scale].bits;
    }
    recipe.kind = scale_count_ > 0           ? SyntheticKind::blocks
                  : type_ == TensorType::i32 ? SyntheticKind::expert_ids
                  : type_ == TensorType::f32 ? SyntheticKind::f32
                  : type_ == TensorType::f16 ? SyntheticKind::f16
                                             : SyntheticKind::bf16;
    return recipe;
}

void SyntheticTensor::fill_unit(std::uint64_t index, std::byte* out) const {
    if (scale_count_ > 0)
        fill_block(index, out);
    else if (type_ == TensorType::i32)
        fill_expert_ids(index, out);
    else
        fill_element(index, out);
}

void SyntheticTensor::fill_block(std::uint64_t index, std::byte* out) const {
    const std::uint64_t words_per_block = ceil_div(unit_bytes_, sizeof(std::uint64_t));
    std::uint64_t word_index = index * words_per_block;
    std::uint64_t at = 0;
    for (; at + sizeof(std::uint64_t) <= unit_bytes_; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = words_[word_index++];
        std::memcpy(out + at, &word, sizeof word);
    }
    if (at < unit_bytes_) {
        const std::uint64_t word = words_[word_index];
        std::memcpy(out + at, &word, unit_bytes_ - at);
    }
    for (std::size_t scale = 0; scale < scale_count_; ++scale)
        std::memcpy(out + scales_[scale].offset_bytes, &scales_[scale].bits, sizeof(std::uint16_t));
}

void SyntheticTensor::fill_element(std::uint64_t index, std::byte* out) const {
    const double r = static_cast<double>(words_[index] >> 40) * 0x1p-23 - 1;
    const auto value = static_cast<float>(center_ + amplitude_ * r);
    if (type_ == TensorType::f32) {
        std::memcpy(out, &value, sizeof value);
        return;
    }
    const std::uint16_t bits =
        type_ == TensorType::f16 ? kernels::f16_from_f32(value) : bf16_of(value);
    std::memcpy(out, &bits, sizeof bits);
}

/// Distinct ids: an odd stride through a power of two meets every expert once.
void SyntheticTensor::fill_expert_ids(std::uint64_t token, std::byte* out) const {
    const std::uint64_t word = words_[token];
    const std::uint64_t first = word % n_experts_;
    const std::uint64_t stride =
        2 * ((word >> 32) % std::max<std::uint64_t>(1, n_experts_ / 2)) + 1;
    for (std::uint64_t k = 0; k * sizeof(std::int32_t) < unit_bytes_; ++k) {
        const auto id = static_cast<std::int32_t>((first + k * stride) % n_experts_);
        std::memcpy(out + k * sizeof id, &id, sizeof id);
    }
}

}  // namespace plimsoll
