#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

/// Storage types of tensors in a GGUF file; the values are the file's own ids (spec: GGUF v3).
enum class TensorType : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q8_0 = 8,
    q2_k = 10,
    q4_k = 12,
    iq2_xxs = 16,
    i32 = 26,
    bf16 = 30,
};

/// One row a format: adding a format is adding a row.
struct TensorTypeInfo {
    TensorType type;
    std::string_view name;
    std::uint64_t block_elements;
    std::uint64_t block_bytes;
};

inline constexpr TensorTypeInfo kTensorTypes[] = {
    {TensorType::f32, "F32", 1, 4},       {TensorType::f16, "F16", 1, 2},
    {TensorType::q8_0, "Q8_0", 32, 34},   {TensorType::q2_k, "Q2_K", 256, 84},
    {TensorType::q4_k, "Q4_K", 256, 144}, {TensorType::iq2_xxs, "IQ2_XXS", 256, 66},
    {TensorType::i32, "I32", 1, 4},       {TensorType::bf16, "BF16", 1, 2},
};

/// The row of a type this engine supports, or null: ids in a file can be anything.
[[nodiscard]] constexpr const TensorTypeInfo* find_tensor_type(std::uint32_t id) {
    for (const TensorTypeInfo& info : kTensorTypes)
        if (static_cast<std::uint32_t>(info.type) == id) return &info;
    return nullptr;
}
[[nodiscard]] constexpr const TensorTypeInfo* find_tensor_type(std::string_view name) {
    for (const TensorTypeInfo& info : kTensorTypes)
        if (info.name == name) return &info;
    return nullptr;
}
[[nodiscard]] constexpr const TensorTypeInfo& info_of(TensorType type) {
    return *find_tensor_type(static_cast<std::uint32_t>(type));
}

/// Bytes of `elements` consecutive elements, whole blocks.
[[nodiscard]] constexpr std::uint64_t storage_bytes(TensorType type, std::uint64_t elements) {
    const TensorTypeInfo& info = info_of(type);
    return (elements / info.block_elements + (elements % info.block_elements != 0 ? 1 : 0)) *
           info.block_bytes;
}

}  // namespace plimsoll
