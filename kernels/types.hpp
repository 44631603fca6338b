#pragma once

#include <cstddef>
#include <cstdint>

namespace plimsoll::kernels {

/// Storage types of weights; the values are GGML's type ids, as GGUF files carry them.
enum class WeightType : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q8_0 = 8,
    q2_k = 10,
    q4_k = 12,
    iq2_xxs = 16,
    bf16 = 30,
};

/// What the inputs of a product look like in memory. See `activation_row_bytes` for the layouts.
enum class ActivationFormat : std::uint8_t { f32, q16, q16k };

/// `precise`: float32 activations against dequantised weights, whatever the weight's type.
/// `fast`: activations quantised to the format that belongs to the weight's type.
enum class ActivationMode : std::uint8_t { precise, fast };

/// One row a type: adding a type is adding a row here, one in the dot tables and a decoder.
struct WeightTypeInfo {
    WeightType type;
    std::uint32_t block_elements;
    std::uint32_t block_bytes;
    ActivationFormat fast_format;  // activations of the fast mode
};

inline constexpr WeightTypeInfo kWeightTypes[] = {
    {WeightType::f32, 1, 4, ActivationFormat::f32},
    {WeightType::f16, 1, 2, ActivationFormat::f32},
    {WeightType::bf16, 1, 2, ActivationFormat::f32},
    {WeightType::q8_0, 32, 34, ActivationFormat::q16},
    {WeightType::q2_k, 256, 84, ActivationFormat::q16k},
    {WeightType::q4_k, 256, 144, ActivationFormat::q16k},
    {WeightType::iq2_xxs, 256, 66, ActivationFormat::q16k},
};

/// The row of a type. An id outside the enumeration gives the F32 row: the loader has refused it
/// before.
[[nodiscard]] constexpr const WeightTypeInfo& info_of(WeightType type) {
    for (const WeightTypeInfo& info : kWeightTypes)
        if (info.type == type) return info;
    return kWeightTypes[0];
}

/// Bytes of one weight row of `n_in` elements, a multiple of the type's block.
[[nodiscard]] constexpr std::uint64_t weight_row_bytes(WeightType type, std::uint64_t n_in) {
    return n_in / info_of(type).block_elements * info_of(type).block_bytes;
}

/// The activation format of a weight type in a mode.
[[nodiscard]] constexpr ActivationFormat activation_format(WeightType type, ActivationMode mode) {
    return mode == ActivationMode::fast ? info_of(type).fast_format : ActivationFormat::f32;
}

inline constexpr std::uint32_t kQ16Elements = 32;
inline constexpr std::uint32_t kQ16KElements = 256;

/// Activations for Q8_0 weights: x = d * q, d = max|x| / 32767.
///
/// 16 bits, where the reference's CPU path takes 8: with 8, noise of about half a percent enters at
/// each of a layer's products, and on the toy models the logits' median cosine falls to 0.998;
/// with 16 it stays above 0.9999. Integer products cost the same, since a weight times its scale
/// fits 16 bits and is made once for all tokens of a tile.
struct ActivationQ16Block {
    float d;
    std::int16_t q[kQ16Elements];
};
static_assert(sizeof(ActivationQ16Block) == 68);

/// Activations for the K-quants and IQ2_XXS: the same over 256 elements.
struct ActivationQ16KBlock {
    float d;
    std::int16_t q[kQ16KElements];
    std::int32_t sum[kQ16KElements / 16];  // of each 16 q
};
static_assert(sizeof(ActivationQ16KBlock) == 580);

/// Bytes of a row of `n` quantised activations: consecutive blocks, no padding. `n` is a multiple
/// of 32.
[[nodiscard]] constexpr std::uint64_t activation_q16_bytes(std::uint64_t n) {
    return n / kQ16Elements * sizeof(ActivationQ16Block);
}
/// The same for blocks of 256. `n` is a multiple of 256.
[[nodiscard]] constexpr std::uint64_t activation_q16k_bytes(std::uint64_t n) {
    return n / kQ16KElements * sizeof(ActivationQ16KBlock);
}
/// Bytes of a row of `n` activations in any format. Rows of a matrix follow one another without
/// padding, and a slice of a row that starts at a multiple of the block is itself a row.
[[nodiscard]] constexpr std::uint64_t activation_row_bytes(ActivationFormat format,
                                                           std::uint64_t n) {
    switch (format) {
        case ActivationFormat::f32: return n * sizeof(float);
        case ActivationFormat::q16: return activation_q16_bytes(n);
        case ActivationFormat::q16k: return activation_q16k_bytes(n);
    }
    return 0;
}

/// A weight as the file stores it: y[o] = sum_i W[o][i] * x[i].
struct WeightMatrix {
    const void* data = nullptr;  // [n_out, n_in], rows of weight_row_bytes(type, n_in), row-major
    WeightType type = WeightType::f32;
    std::uint32_t n_in = 0;
    std::uint32_t n_out = 0;
};

/// Largest sizes the kernels are built for; larger ones are stopped by a check, smaller ones cost
/// nothing.
inline constexpr std::uint32_t kHeadDimMax = 512;
inline constexpr std::uint32_t kRopeDimMax = 128;
inline constexpr std::uint32_t kStreamsMax = 8;
inline constexpr std::uint32_t kExpertsUsedMax = 16;

}  // namespace plimsoll::kernels
