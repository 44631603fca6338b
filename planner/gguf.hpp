#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/result.hpp"
#include "planner/tensor_type.hpp"

namespace plimsoll {

/// Ids of metadata value types, as GGUF v3 numbers them.
enum class GgufValueType : std::uint32_t {
    u8 = 0,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
};

/// "u8", "string", "array".
[[nodiscard]] std::string_view value_type_name(GgufValueType type);

/// An array stays in the file: a vocabulary is megabytes that planning never looks at. The range
/// has been walked and is well formed.
struct GgufArray {
    GgufValueType element_type = GgufValueType::u8;
    std::uint64_t count = 0;
    std::uint64_t offset_bytes = 0;  // absolute, of the first element
    std::uint64_t size_bytes = 0;

    bool operator==(const GgufArray&) const = default;
};

struct GgufEntry {
    std::string key;
    GgufValueType type = GgufValueType::u8;
    /// Unsigned integers as u64, signed as i64, both floats as double.
    std::variant<std::uint64_t, std::int64_t, double, bool, std::string, GgufArray> value;
};

struct GgufTensor {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::uint64_t> dims;  // row length first, 1 to 4 of them
    std::uint64_t offset_bytes = 0;   // absolute
    std::uint64_t size_bytes = 0;
};

/// Random access to the bytes of one file. `read` fills the whole span or returns false.
struct ByteSource {
    std::uint64_t size_bytes = 0;
    std::function<bool(std::uint64_t offset_bytes, std::span<std::byte> into)> read;
};

/// A checked header: every range lies inside the file, no two tensors overlap, names are unique.
struct GgufFile {
    std::string path;  // for messages
    ByteSource source;
    std::uint64_t alignment_bytes = 32;
    std::uint64_t data_offset_bytes = 0;
    std::vector<GgufEntry> metadata;  // in file order
    std::vector<GgufTensor> tensors;  // in file order

    /// The entry, or null.
    [[nodiscard]] const GgufEntry* find(std::string_view key) const;
};

/// Opens a regular file for reading; the descriptor closes with the last copy of the source.
[[nodiscard]] Result<ByteSource> open_source(const std::string& path);

/// Reads a GGUF v3 header in bounded pieces and checks it whole. Tensor data is never read. The
/// error names `path` and the key or tensor at fault. Memory stays below the header's own size and
/// some MiB.
[[nodiscard]] Result<GgufFile> parse_gguf(ByteSource source, std::string path);

/// `open_source` and `parse_gguf`.
[[nodiscard]] Result<GgufFile> read_gguf(const std::string& path);

/// Many strings in one block: string i is bytes [ends[i - 1], ends[i]).
struct StringTable {
    std::string bytes;
    std::vector<std::uint64_t> ends;

    [[nodiscard]] std::size_t size() const { return ends.size(); }
    [[nodiscard]] std::string_view operator[](std::size_t index) const {
        const std::uint64_t first = index == 0 ? 0 : ends[index - 1];
        return std::string_view(bytes).substr(first, ends[index] - first);
    }
};

/// The elements of an array entry. Errors: no such key, another element type, a read that fails.
/// Integer arrays of 8 to 64 bits are read as i64, float arrays as double.
[[nodiscard]] Result<StringTable> read_strings(const GgufFile& file, std::string_view key);
[[nodiscard]] Result<std::vector<std::int64_t>> read_integers(const GgufFile& file,
                                                              std::string_view key);
[[nodiscard]] Result<std::vector<double>> read_floats(const GgufFile& file, std::string_view key);

/// A name from a file made fit to print: odd bytes as \xNN, at most 80 bytes of it.
[[nodiscard]] std::string printable(std::string_view name);

}  // namespace plimsoll
