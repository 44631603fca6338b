#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/gguf.hpp"

namespace plimsoll::test {

/// A number as the file stores it, little-endian like every machine this runs on.
template <class T>
std::string number(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

/// A length of eight bytes and the text.
inline std::string counted(std::string_view text) {
    return number(std::uint64_t{text.size()}) + std::string(text);
}

/// An array's element type, count and elements.
inline std::string array_bytes(GgufValueType element_type, std::uint64_t count,
                               std::string_view elements) {
    return number(static_cast<std::uint32_t>(element_type)) + number(count) + std::string(elements);
}

struct RawEntry {
    std::string key;
    std::uint32_t type = 0;
    std::string value;  // the bytes behind the type
};

struct RawTensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::uint64_t offset_bytes = 0;
    std::optional<std::uint32_t> claimed_dims = std::nullopt;  // in place of the number of dims
};

/// A header as it is written, right or wrong: nothing here is checked.
struct RawHeader {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::vector<RawEntry> entries;
    std::vector<RawTensor> tensors;
    std::optional<std::uint64_t> claimed_entries;
    std::optional<std::uint64_t> claimed_tensors;
    std::string entry_tail;        // bytes in place of a last entry
    std::uint64_t data_bytes = 0;  // the file goes on so far behind the header

    [[nodiscard]] RawEntry* find(std::string_view key) {
        const auto at = std::find_if(entries.begin(), entries.end(),
                                     [&](const RawEntry& entry) { return entry.key == key; });
        return at == entries.end() ? nullptr : &*at;
    }
    [[nodiscard]] RawTensor* tensor(std::string_view name) {
        const auto at = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const RawTensor& tensor) { return tensor.name == name; });
        return at == tensors.end() ? nullptr : &*at;
    }
    /// Sets or adds an entry.
    void set(std::string_view key, GgufValueType type, std::string value) {
        const auto id = static_cast<std::uint32_t>(type);
        if (RawEntry* entry = find(key))
            *entry = {std::string(key), id, std::move(value)};
        else
            entries.push_back({std::string(key), id, std::move(value)});
    }
    void set_u32(std::string_view key, std::uint32_t value) {
        set(key, GgufValueType::u32, number(value));
    }
    void set_f32(std::string_view key, float value) { set(key, GgufValueType::f32, number(value)); }
    void set_string(std::string_view key, std::string_view value) {
        set(key, GgufValueType::string, counted(value));
    }
    void drop(std::string_view key) {
        std::erase_if(entries, [&](const RawEntry& entry) { return entry.key == key; });
    }
    void drop_tensor(std::string_view name) {
        std::erase_if(tensors, [&](const RawTensor& tensor) { return tensor.name == name; });
    }

    /// All bytes up to the data section.
    [[nodiscard]] std::string bytes(std::uint64_t alignment_bytes = 32) const {
        const std::uint64_t tail = entry_tail.empty() ? 0 : 1;
        std::string out = magic + number(version) +
                          number(claimed_tensors.value_or(tensors.size())) +
                          number(claimed_entries.value_or(entries.size() + tail));
        for (const RawEntry& entry : entries)
            out += counted(entry.key) + number(entry.type) + entry.value;
        out += entry_tail;
        for (const RawTensor& tensor : tensors) {
            const auto count = static_cast<std::uint32_t>(tensor.dims.size());
            out += counted(tensor.name) + number(tensor.claimed_dims.value_or(count));
            for (const std::uint64_t dim : tensor.dims) out += number(dim);
            out += number(tensor.type) + number(tensor.offset_bytes);
        }
        out.resize((out.size() + alignment_bytes - 1) / alignment_bytes * alignment_bytes);
        return out;
    }
};

/// A file of these bytes that goes on for `data_bytes` which nobody may read.
inline ByteSource source_of(std::string bytes, std::uint64_t data_bytes = 0) {
    const auto held = std::make_shared<const std::string>(std::move(bytes));
    ByteSource source;
    source.size_bytes = held->size() + data_bytes;
    source.read = [held](std::uint64_t offset_bytes, std::span<std::byte> into) {
        // A window may reach over the end of the header; what is there is not looked at.
        if (offset_bytes >= held->size()) return false;
        const std::size_t piece = std::min(into.size(), held->size() - offset_bytes);
        std::memcpy(into.data(), held->data() + offset_bytes, piece);
        return true;
    };
    return source;
}

inline ByteSource source_of(const RawHeader& header) {
    return source_of(header.bytes(), header.data_bytes);
}

}  // namespace plimsoll::test
