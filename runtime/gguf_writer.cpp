#include "runtime/gguf_writer.hpp"

#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;

/// The bytes of a number as they lie in memory: little endian, as GGUF has them.
template <class T>
void append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& out, std::string_view text) {
    append(out, std::uint64_t{text.size()});
    out.append(text);
}

template <class T>
void append_all(std::string& out, std::span<const T> values) {
    for (const T value : values) append(out, value);
}

}  // namespace

void GgufWriter::begin_entry(std::string_view key, GgufValueType type) {
    append_text(metadata_, key);
    append(metadata_, static_cast<std::uint32_t>(type));
    ++entry_count_;
}

void GgufWriter::begin_array(std::string_view key, GgufValueType element_type,
                             std::uint64_t count) {
    begin_entry(key, GgufValueType::array);
    append(metadata_, static_cast<std::uint32_t>(element_type));
    append(metadata_, count);
}

void GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
    begin_entry(key, GgufValueType::u32);
    append(metadata_, value);
}

void GgufWriter::add_f32(std::string_view key, float value) {
    begin_entry(key, GgufValueType::f32);
    append(metadata_, value);
}

void GgufWriter::add_bool(std::string_view key, bool value) {
    begin_entry(key, GgufValueType::boolean);
    append(metadata_, static_cast<std::uint8_t>(value ? 1 : 0));
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
    begin_entry(key, GgufValueType::string);
    append_text(metadata_, value);
}

void GgufWriter::add_i32_array(std::string_view key, std::span<const std::int32_t> values) {
    begin_array(key, GgufValueType::i32, values.size());
    append_all(metadata_, values);
}

void GgufWriter::add_f32_array(std::string_view key, std::span<const float> values) {
    begin_array(key, GgufValueType::f32, values.size());
    append_all(metadata_, values);
}

void GgufWriter::add_string_array(std::string_view key, std::span<const std::string> values) {
    begin_array(key, GgufValueType::string, values.size());
    for (const std::string& value : values) append_text(metadata_, value);
}

void GgufWriter::add_tensor(const Tensor& tensor) {
    append_text(tensors_, tensor.name);
    append(tensors_, static_cast<std::uint32_t>(tensor.dims.size()));
    append_all(tensors_, std::span<const std::uint64_t>(tensor.dims));
    append(tensors_, static_cast<std::uint32_t>(tensor.type));
    append(tensors_, tensor.file_offset_bytes);
    ++tensor_count_;
}

std::string GgufWriter::finish() const {
    std::string header(kMagic);
    append(header, kVersion);
    append(header, tensor_count_);
    append(header, entry_count_);
    header += metadata_;
    header += tensors_;
    header.resize(align_up(header.size(), kFileAlignmentBytes), '\0');
    return header;
}

}  // namespace plimsoll
