#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "planner/gguf.hpp"
#include "planner/model.hpp"

namespace plimsoll {

/// Puts the header of a GGUF v3 file together, in memory: metadata and tensor infos in the order
/// they were added. The data section follows directly behind it.
class GgufWriter {
public:
    void add_u32(std::string_view key, std::uint32_t value);
    void add_f32(std::string_view key, float value);
    void add_bool(std::string_view key, bool value);
    void add_string(std::string_view key, std::string_view value);
    void add_i32_array(std::string_view key, std::span<const std::int32_t> values);
    void add_f32_array(std::string_view key, std::span<const float> values);
    void add_string_array(std::string_view key, std::span<const std::string> values);

    /// `file_offset_bytes` counts from the start of the data section.
    void add_tensor(const Tensor& tensor);

    /// The header, padded to kFileAlignmentBytes.
    [[nodiscard]] std::string finish() const;

private:
    void begin_entry(std::string_view key, GgufValueType type);
    void begin_array(std::string_view key, GgufValueType element_type, std::uint64_t count);

    std::string metadata_;
    std::string tensors_;
    std::uint64_t entry_count_ = 0;
    std::uint64_t tensor_count_ = 0;
};

}  // namespace plimsoll
