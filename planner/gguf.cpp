#include "planner/gguf.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "planner/byte_cursor.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kMetadataCountMax = 65'536;
constexpr std::uint64_t kTensorCountMax = 65'536;
constexpr std::uint64_t kNameBytesMax = 65'535;
// A real header is some 5 MB; the limit keeps the walk of a hostile one well below a second.
constexpr std::uint64_t kHeaderBytesMax = 256 * kMiB;
constexpr std::uint32_t kDimCountMax = 4;
constexpr int kNestingMax = 8;

// Fewest bytes an entry can take: key length, one character, type, one byte of value.
constexpr std::uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;
// Name length, one character, dim count, one dim, type, offset.
constexpr std::uint64_t kTensorInfoBytesMin = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::uint64_t kStringBytesMin = 8;
constexpr std::uint64_t kArrayBytesMin = 4 + 8;

struct ValueTypeInfo {
    std::string_view name;
    std::uint64_t size_bytes;  // of one value; the fewest bytes of one for string and array
};

constexpr ValueTypeInfo kValueTypes[] = {
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", kStringBytesMin},
    {"array", kArrayBytesMin},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
};

bool is_value_type(std::uint32_t id) { return id < std::size(kValueTypes); }
const ValueTypeInfo& info_of(GgufValueType type) {
    return kValueTypes[static_cast<std::uint32_t>(type)];
}

/// What is wrong, without the file's name and the entry's; empty where all is well.
using Problem = std::optional<std::string>;

std::string ends_inside(std::string_view what, const ByteCursor& cursor) {
    return fmt::format("the file ends inside {} ({} bytes left)", what, cursor.left());
}

Problem read_name(ByteCursor& cursor, std::string_view what, std::string& out) {
    std::uint64_t size_bytes = 0;
    if (!cursor.read(size_bytes)) return ends_inside(what, cursor);
    if (size_bytes == 0) return fmt::format("{} is empty", what);
    if (size_bytes > kNameBytesMax || size_bytes > cursor.left())
        return fmt::format("{} claims {} bytes (limit {}, {} left)", what, size_bytes,
                           kNameBytesMax, cursor.left());
    if (!cursor.append(size_bytes, out)) return ends_inside(what, cursor);
    return std::nullopt;
}

template <class Stored, class Kept>
Problem read_number(ByteCursor& cursor, GgufEntry& entry) {
    Stored value{};
    if (!cursor.read(value)) return ends_inside("its value", cursor);
    entry.value = static_cast<Kept>(value);
    return std::nullopt;
}

Problem read_bool(ByteCursor& cursor, bool& out) {
    std::uint8_t value = 0;
    if (!cursor.read(value)) return ends_inside("its value", cursor);
    if (value > 1) return fmt::format("a bool must be 0 or 1, is {}", value);
    out = value == 1;
    return std::nullopt;
}

Problem skip_elements(ByteCursor& cursor, GgufValueType type, std::uint64_t count, int depth);

Problem skip_array(ByteCursor& cursor, int depth, GgufArray& out) {
    if (depth > kNestingMax) return fmt::format("arrays nest deeper than {}", kNestingMax);
    std::uint32_t type = 0;
    if (!cursor.read(type) || !cursor.read(out.count)) return ends_inside("an array", cursor);
    if (!is_value_type(type)) return fmt::format("unknown array element type {}", type);
    out.element_type = static_cast<GgufValueType>(type);
    const auto bytes_min = checked_mul(out.count, info_of(out.element_type).size_bytes);
    if (!bytes_min || *bytes_min > cursor.left())
        return fmt::format("an array claims {} elements of type {}, {} bytes are left", out.count,
                           info_of(out.element_type).name, cursor.left());
    out.offset_bytes = cursor.position();
    if (Problem problem = skip_elements(cursor, out.element_type, out.count, depth)) return problem;
    out.size_bytes = cursor.position() - out.offset_bytes;
    return std::nullopt;
}

Problem skip_elements(ByteCursor& cursor, GgufValueType type, std::uint64_t count, int depth) {
    if (type == GgufValueType::string) {
        for (std::uint64_t index = 0; index < count; ++index) {
            std::uint64_t size_bytes = 0;
            if (!cursor.read(size_bytes) || !cursor.skip(size_bytes))
                return fmt::format("string {} claims {} bytes, {} are left", index, size_bytes,
                                   cursor.left());
        }
    } else if (type == GgufValueType::array) {
        for (std::uint64_t index = 0; index < count; ++index) {
            GgufArray inner;
            if (Problem problem = skip_array(cursor, depth + 1, inner)) return problem;
        }
    } else if (type == GgufValueType::boolean) {
        bool value = false;
        for (std::uint64_t index = 0; index < count; ++index)
            if (Problem problem = read_bool(cursor, value)) return problem;
    } else if (!cursor.skip(count * info_of(type).size_bytes)) {
        return ends_inside("an array", cursor);
    }
    return std::nullopt;
}

Problem read_string_value(ByteCursor& cursor, GgufEntry& entry) {
    std::uint64_t size_bytes = 0;
    if (!cursor.read(size_bytes)) return ends_inside("its value", cursor);
    std::string text;
    if (!cursor.append(size_bytes, text))
        return fmt::format("a string claims {} bytes, {} are left", size_bytes, cursor.left());
    entry.value = std::move(text);
    return std::nullopt;
}

Problem read_value(ByteCursor& cursor, GgufEntry& entry) {
    using T = GgufValueType;
    switch (entry.type) {
        case T::u8: return read_number<std::uint8_t, std::uint64_t>(cursor, entry);
        case T::u16: return read_number<std::uint16_t, std::uint64_t>(cursor, entry);
        case T::u32: return read_number<std::uint32_t, std::uint64_t>(cursor, entry);
        case T::u64: return read_number<std::uint64_t, std::uint64_t>(cursor, entry);
        case T::i8: return read_number<std::int8_t, std::int64_t>(cursor, entry);
        case T::i16: return read_number<std::int16_t, std::int64_t>(cursor, entry);
        case T::i32: return read_number<std::int32_t, std::int64_t>(cursor, entry);
        case T::i64: return read_number<std::int64_t, std::int64_t>(cursor, entry);
        case T::f32: return read_number<float, double>(cursor, entry);
        case T::f64: return read_number<double, double>(cursor, entry);
        case T::boolean: return read_bool(cursor, entry.value.emplace<bool>());
        case T::string: return read_string_value(cursor, entry);
        case T::array: return skip_array(cursor, 1, entry.value.emplace<GgufArray>());
    }
    return "unknown value type";
}

Problem read_entry(ByteCursor& cursor, std::uint64_t index, GgufEntry& entry) {
    const std::string which = fmt::format("metadata key {}", index);
    if (Problem problem = read_name(cursor, which, entry.key)) return problem;
    const auto named = [&](const std::string& problem) {
        return fmt::format("key '{}': {}", printable(entry.key), problem);
    };
    std::uint32_t type = 0;
    if (!cursor.read(type)) return named(ends_inside("its type", cursor));
    if (!is_value_type(type)) return named(fmt::format("unknown value type {}", type));
    entry.type = static_cast<GgufValueType>(type);
    if (Problem problem = read_value(cursor, entry)) return named(*problem);
    return std::nullopt;
}

Problem take_alignment(GgufFile& file) {
    const GgufEntry* entry = file.find("general.alignment");
    if (!entry) return std::nullopt;
    if (entry->type != GgufValueType::u32)
        return fmt::format("key 'general.alignment': must be u32, is {}",
                           info_of(entry->type).name);
    const std::uint64_t alignment = std::get<std::uint64_t>(entry->value);
    if (!is_power_of_two(alignment) || alignment < 8 || alignment > 65'536)
        return fmt::format("key 'general.alignment': {} is not a power of two from 8 to 65536",
                           alignment);
    file.alignment_bytes = alignment;
    return std::nullopt;
}

/// Elements and bytes of `tensor`, or what is wrong with its dims.
Problem measure(GgufTensor& tensor) {
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) {
        if (dim == 0) return "a dimension is 0";
        const auto product = checked_mul(elements, dim);
        if (!product) return "its element count does not fit 64 bits";
        elements = *product;
    }
    const TensorTypeInfo& type = info_of(tensor.type);
    const auto bytes = checked_mul(ceil_div(elements, type.block_elements), type.block_bytes);
    if (!bytes) return "its byte count does not fit 64 bits";
    tensor.size_bytes = *bytes;
    return std::nullopt;
}

/// The offset stays relative to the data section, whose start is known only after the last tensor.
Problem read_tensor(ByteCursor& cursor, std::uint64_t index, std::uint64_t alignment_bytes,
                    GgufTensor& tensor) {
    const std::string which = fmt::format("tensor name {}", index);
    if (Problem problem = read_name(cursor, which, tensor.name)) return problem;
    const auto named = [&](const std::string& problem) {
        return fmt::format("tensor '{}': {}", printable(tensor.name), problem);
    };
    std::uint32_t dim_count = 0;
    if (!cursor.read(dim_count)) return named(ends_inside("its dimensions", cursor));
    if (dim_count < 1 || dim_count > kDimCountMax)
        return named(fmt::format("has {} dimensions, must have 1 to {}", dim_count, kDimCountMax));
    tensor.dims.resize(dim_count);
    for (std::uint64_t& dim : tensor.dims)
        if (!cursor.read(dim)) return named(ends_inside("its dimensions", cursor));
    std::uint32_t type = 0;
    if (!cursor.read(type) || !cursor.read(tensor.offset_bytes))
        return named(ends_inside("its entry", cursor));
    const TensorTypeInfo* type_info = find_tensor_type(type);
    if (!type_info) return named(fmt::format("unknown type {}", type));
    tensor.type = type_info->type;
    if (Problem problem = measure(tensor)) return named(*problem);
    if (tensor.offset_bytes % alignment_bytes != 0)
        return named(fmt::format("offset {} is not a multiple of the alignment {}",
                                 tensor.offset_bytes, alignment_bytes));
    return std::nullopt;
}

Problem check_unique(std::vector<std::string_view> names, std::string_view what) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return std::nullopt;
    return fmt::format("{} '{}' occurs twice", what, printable(*twice));
}

/// Makes offsets absolute and checks that tensors lie in the file, apart from each other.
Problem place_tensors(GgufFile& file) {
    for (GgufTensor& tensor : file.tensors) {
        const auto start = checked_add(file.data_offset_bytes, tensor.offset_bytes);
        const auto end = start ? checked_add(*start, tensor.size_bytes) : std::nullopt;
        if (!end || *end > file.source.size_bytes)
            return fmt::format(
                "tensor '{}': {} bytes at offset {} of the data do not fit the file of "
                "{} bytes",
                printable(tensor.name), tensor.size_bytes, tensor.offset_bytes,
                file.source.size_bytes);
        tensor.offset_bytes = *start;
    }
    std::vector<const GgufTensor*> by_offset;
    for (const GgufTensor& tensor : file.tensors) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const auto* a, const auto* b) { return a->offset_bytes < b->offset_bytes; });
    for (std::size_t at = 1; at < by_offset.size(); ++at) {
        const GgufTensor& below = *by_offset[at - 1];
        if (below.offset_bytes + below.size_bytes > by_offset[at]->offset_bytes)
            return fmt::format("tensors '{}' and '{}' overlap", printable(below.name),
                               printable(by_offset[at]->name));
    }
    return std::nullopt;
}

struct Counts {
    std::uint64_t tensors = 0;
    std::uint64_t entries = 0;
};

Problem check_magic(const ByteSource& source) {
    char magic[4] = {};
    const auto into = std::as_writable_bytes(std::span(magic));
    if (source.size_bytes < sizeof magic || !source.read(0, into))
        return fmt::format("not a GGUF file: {} bytes long", source.size_bytes);
    if (std::memcmp(magic, "GGUF", sizeof magic) != 0)
        return fmt::format("not a GGUF file: it starts with '{}'",
                           printable(std::string_view(magic, sizeof magic)));
    return std::nullopt;
}

Problem read_counts(ByteCursor& cursor, Counts& counts) {
    std::uint32_t version = 0;
    if (!cursor.skip(4) || !cursor.read(version) || !cursor.read(counts.tensors) ||
        !cursor.read(counts.entries))
        return ends_inside("the version and counts", cursor);
    if (version == 0x03000000u) return "GGUF of the other byte order (big-endian) is not supported";
    if (version != 3) return fmt::format("GGUF version {} is not supported, only 3", version);
    if (counts.entries > kMetadataCountMax || counts.entries * kEntryBytesMin > cursor.left())
        return fmt::format("metadata count {} cannot be: limit {}, {} bytes left", counts.entries,
                           kMetadataCountMax, cursor.left());
    if (counts.tensors > kTensorCountMax || counts.tensors * kTensorInfoBytesMin > cursor.left())
        return fmt::format("tensor count {} cannot be: limit {}, {} bytes left", counts.tensors,
                           kTensorCountMax, cursor.left());
    return std::nullopt;
}

Problem read_header(GgufFile& file) {
    if (Problem problem = check_magic(file.source)) return problem;
    const std::uint64_t limit = std::min(file.source.size_bytes, kHeaderBytesMax);
    ByteCursor cursor(file.source, 0, limit);
    Counts counts;
    if (Problem problem = read_counts(cursor, counts)) return problem;
    for (std::uint64_t index = 0; index < counts.entries; ++index) {
        GgufEntry entry;
        if (Problem problem = read_entry(cursor, index, entry)) return problem;
        file.metadata.push_back(std::move(entry));
    }
    std::vector<std::string_view> names;
    for (const GgufEntry& entry : file.metadata) names.push_back(entry.key);
    if (Problem problem = check_unique(std::move(names), "key")) return problem;
    if (Problem problem = take_alignment(file)) return problem;
    for (std::uint64_t index = 0; index < counts.tensors; ++index) {
        GgufTensor tensor;
        if (Problem problem = read_tensor(cursor, index, file.alignment_bytes, tensor))
            return problem;
        file.tensors.push_back(std::move(tensor));
    }
    names.clear();
    for (const GgufTensor& tensor : file.tensors) names.push_back(tensor.name);
    if (Problem problem = check_unique(std::move(names), "tensor")) return problem;
    file.data_offset_bytes = align_up(cursor.position(), file.alignment_bytes);
    return place_tensors(file);
}

/// The array behind `key`, or why there is none such.
Result<GgufArray> find_array(const GgufFile& file, std::string_view key) {
    const GgufEntry* entry = file.find(key);
    const GgufArray* array = entry ? std::get_if<GgufArray>(&entry->value) : nullptr;
    if (array) return *array;
    return Error{ErrorKind::bad_file, fmt::format("{}: key '{}' {}", file.path, key,
                                                  entry ? "is not an array" : "is missing")};
}

Error wrong_elements(const GgufFile& file, std::string_view key, const GgufArray& array) {
    return {ErrorKind::bad_file, fmt::format("{}: key '{}': elements of type {} are of no use here",
                                             file.path, key, info_of(array.element_type).name)};
}

Error unreadable(const GgufFile& file, std::string_view key) {
    return {ErrorKind::bad_file,
            fmt::format("{}: key '{}': the file has changed or cannot be read", file.path, key)};
}

template <class Stored, class Kept>
bool read_all(const GgufFile& file, const GgufArray& array, std::vector<Kept>& out) {
    ByteCursor cursor(file.source, array.offset_bytes, array.offset_bytes + array.size_bytes);
    out.reserve(array.count);
    for (std::uint64_t index = 0; index < array.count; ++index) {
        Stored value{};
        if (!cursor.read(value)) return false;
        out.push_back(static_cast<Kept>(value));
    }
    return true;
}

}  // namespace

std::string_view value_type_name(GgufValueType type) { return info_of(type).name; }

const GgufEntry* GgufFile::find(std::string_view key) const {
    const auto at = std::find_if(metadata.begin(), metadata.end(),
                                 [&](const GgufEntry& entry) { return entry.key == key; });
    return at == metadata.end() ? nullptr : &*at;
}

Result<ByteSource> open_source(const std::string& path) {
    // Without O_NONBLOCK a pipe would block here until somebody writes to it.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return Error{ErrorKind::bad_file,
                     fmt::format("{}: cannot open: {}", path, std::strerror(errno))};
    const std::shared_ptr<const int> owner(new int(descriptor), [](const int* held) {
        ::close(*held);
        delete held;
    });
    struct stat facts = {};
    if (::fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode))
        return Error{ErrorKind::bad_file, fmt::format("{}: not a regular file", path)};
    ByteSource source;
    source.size_bytes = static_cast<std::uint64_t>(facts.st_size);
    source.read = [owner](std::uint64_t offset_bytes, std::span<std::byte> into) {
        while (!into.empty()) {
            const ssize_t got =
                ::pread(*owner, into.data(), into.size(), static_cast<off_t>(offset_bytes));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            offset_bytes += static_cast<std::uint64_t>(got);
            into = into.subspan(static_cast<std::size_t>(got));
        }
        return true;
    };
    return source;
}

Result<GgufFile> parse_gguf(ByteSource source, std::string path) {
    GgufFile file;
    file.path = std::move(path);
    file.source = std::move(source);
    if (const Problem problem = read_header(file))
        return Error{ErrorKind::bad_file, fmt::format("{}: {}", file.path, *problem)};
    return file;
}

Result<GgufFile> read_gguf(const std::string& path) {
    Result<ByteSource> source = open_source(path);
    if (!source) return source.error();
    return parse_gguf(std::move(source).value(), path);
}

Result<StringTable> read_strings(const GgufFile& file, std::string_view key) {
    const Result<GgufArray> array = find_array(file, key);
    if (!array) return array.error();
    if (array->element_type != GgufValueType::string) return wrong_elements(file, key, *array);
    StringTable table;
    table.ends.reserve(array->count);
    table.bytes.reserve(array->size_bytes - array->count * kStringBytesMin);
    ByteCursor cursor(file.source, array->offset_bytes, array->offset_bytes + array->size_bytes);
    for (std::uint64_t index = 0; index < array->count; ++index) {
        std::uint64_t size_bytes = 0;
        if (!cursor.read(size_bytes) || !cursor.append(size_bytes, table.bytes))
            return unreadable(file, key);
        table.ends.push_back(table.bytes.size());
    }
    return table;
}

Result<std::vector<std::int64_t>> read_integers(const GgufFile& file, std::string_view key) {
    const Result<GgufArray> array = find_array(file, key);
    if (!array) return array.error();
    std::vector<std::int64_t> out;
    bool read = false;
    switch (array->element_type) {
        case GgufValueType::u8: read = read_all<std::uint8_t>(file, *array, out); break;
        case GgufValueType::i8: read = read_all<std::int8_t>(file, *array, out); break;
        case GgufValueType::u16: read = read_all<std::uint16_t>(file, *array, out); break;
        case GgufValueType::i16: read = read_all<std::int16_t>(file, *array, out); break;
        case GgufValueType::u32: read = read_all<std::uint32_t>(file, *array, out); break;
        case GgufValueType::i32: read = read_all<std::int32_t>(file, *array, out); break;
        case GgufValueType::i64: read = read_all<std::int64_t>(file, *array, out); break;
        default: return wrong_elements(file, key, *array);
    }
    if (!read) return unreadable(file, key);
    return out;
}

Result<std::vector<double>> read_floats(const GgufFile& file, std::string_view key) {
    const Result<GgufArray> array = find_array(file, key);
    if (!array) return array.error();
    std::vector<double> out;
    bool read = false;
    switch (array->element_type) {
        case GgufValueType::f32: read = read_all<float>(file, *array, out); break;
        case GgufValueType::f64: read = read_all<double>(file, *array, out); break;
        default: return wrong_elements(file, key, *array);
    }
    if (!read) return unreadable(file, key);
    return out;
}

std::string printable(std::string_view name) {
    constexpr std::size_t kShownBytesMax = 80;
    std::string out;
    for (const char c : name.substr(0, kShownBytesMax)) {
        if (c >= 0x20 && c < 0x7f)
            out += c;
        else
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    if (name.size() > kShownBytesMax) out += "…";
    return out;
}

}  // namespace plimsoll
