#include "tests/planner/gguf_faults.hpp"

namespace plimsoll::test {
namespace {

using H = RawHeader;
using T = GgufValueType;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint64_t kEnd = ~std::uint64_t{0};

/// A tensor ahead of all others.
void add_tensor(H& header, std::vector<std::uint64_t> dims, std::uint32_t type = kF32,
                std::uint64_t offset_bytes = 0) {
    header.tensors.insert(header.tensors.begin(),
                          {"odd.weight", std::move(dims), type, offset_bytes});
    header.data_bytes += 1024;
}

void add_alignment(H& header, T type, std::string value) {
    header.set("general.alignment", type, std::move(value));
    header.data_bytes += 1024;
}

/// `depth` arrays of one array each, around one byte.
std::string nest(int depth) {
    std::string bytes = array_bytes(T::u8, 1, "\1");
    for (int level = 1; level < depth; ++level) bytes = array_bytes(T::array, 1, bytes);
    return bytes;
}

void claim_long_string(H& h) {
    h.drop("general.name");
    h.entry_tail =
        counted("general.name") + number(std::uint32_t{8}) + number(std::uint64_t{1} << 30);
}

void claim_long_key(H& h) { h.entry_tail = number(std::uint64_t{1} << 63) + "x"; }

void claim_dims(H& h) {
    add_tensor(h, {});
    h.tensors.front().claimed_dims = ~std::uint32_t{0};
}

void overlap(H& h) {
    h.tensors.push_back({"odd.weight", {32}, kF32, h.data_bytes});
    h.tensors.push_back({"odder.weight", {32}, kF32, h.data_bytes + 64});
    h.data_bytes += 1024;
}

void repeat_tensor(H& h) {
    for (int time = 0; time < 2; ++time) {
        h.tensors.push_back({"odd.weight", {32}, kF32, h.data_bytes});
        h.data_bytes += 128;
    }
}

void repeat_key(H& h) {
    h.entries.push_back({"odd.key", 4, number(std::uint32_t{1})});
    h.entries.push_back({"odd.key", 4, number(std::uint32_t{2})});
}

// clang-format off
constexpr GgufFault kFaults[] = {
    // name                 told                  spoil
    {"OtherFile",           "<!DO",               [](H& h) { h.magic = "<!DOCTYPE html>denied"; }},
    {"Version1",            "version 1",          [](H& h) { h.version = 1; }},
    {"Version4",            "version 4",          [](H& h) { h.version = 4; }},
    {"BigEndian",           "byte order",         [](H& h) { h.version = 3u << 24; }},
    {"Keys2To32",           "metadata count",     [](H& h) { h.claimed_entries = std::uint64_t{1} << 32; }},
    {"Keys2To60",           "metadata count",     [](H& h) { h.claimed_entries = std::uint64_t{1} << 60; }},
    {"Tensors2To60",        "tensor count",       [](H& h) { h.claimed_tensors = std::uint64_t{1} << 60; }},
    {"TensorsMinus1",       "tensor count",       [](H& h) { h.claimed_tensors = kEnd; }},
    {"LongKey",             "metadata key",       claim_long_key},
    {"EmptyKey",            "metadata key",       [](H& h) { h.entries.insert(h.entries.begin(), {"", 4, number(1u)}); }},
    {"RepeatedKey",         "odd.key",            repeat_key},
    {"UnknownValueType",    "odd.key",            [](H& h) { h.entries.push_back({"odd.key", 13, number(1u)}); }},
    {"String1GiB",          "general.name",       claim_long_string},
    {"Bool2",               "odd.key",            [](H& h) { h.set("odd.key", T::boolean, "\2"); }},
    {"BoolArray2",          "odd.key",            [](H& h) { h.set("odd.key", T::array, array_bytes(T::boolean, 2, "\1\2")); }},
    {"Array2To61",          "odd.key",            [](H& h) { h.set("odd.key", T::array, array_bytes(T::u64, std::uint64_t{1} << 61, "")); }},
    {"ArrayOfUnknownType",  "odd.key",            [](H& h) { h.set("odd.key", T::array, array_bytes(T{99}, 1, "\1")); }},
    {"Strings2To60",        "odd.key",            [](H& h) { h.set("odd.key", T::array, array_bytes(T::string, std::uint64_t{1} << 60, "")); }},
    {"Nests9",              "odd.key",            [](H& h) { h.set("odd.key", T::array, nest(9)); }},
    {"Nests4000",           "odd.key",            [](H& h) { h.set("odd.key", T::array, nest(4000)); }},
    {"Alignment0",          "general.alignment",  [](H& h) { add_alignment(h, T::u32, number(0u)); }},
    {"Alignment3",          "general.alignment",  [](H& h) { add_alignment(h, T::u32, number(3u)); }},
    {"Alignment2To31",      "general.alignment",  [](H& h) { add_alignment(h, T::u32, number(1u << 31)); }},
    {"AlignmentIsI32",      "general.alignment",  [](H& h) { add_alignment(h, T::i32, number(32)); }},
    {"AlignmentIsText",     "general.alignment",  [](H& h) { add_alignment(h, T::string, counted("32")); }},
    {"EmptyTensorName",     "tensor name 0",      [](H& h) { add_tensor(h, {32}); h.tensors.front().name.clear(); }},
    {"RepeatedTensor",      "odd.weight",         repeat_tensor},
    {"Dims0",               "odd.weight",         [](H& h) { add_tensor(h, {}); }},
    {"Dims9",               "odd.weight",         [](H& h) { add_tensor(h, std::vector<std::uint64_t>(9, 1)); }},
    {"Dims2To32",           "odd.weight",         claim_dims},
    {"ElementsWrap",        "odd.weight",         [](H& h) { add_tensor(h, {kEnd, 2}); }},
    {"ElementsWrapTo0",     "odd.weight",         [](H& h) { add_tensor(h, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}); }},
    {"BytesWrap",           "odd.weight",         [](H& h) { add_tensor(h, {std::uint64_t{1} << 62, 1}); }},
    {"DimOf0",              "odd.weight",         [](H& h) { add_tensor(h, {1, 0}); }},
    {"UnknownType",         "odd.weight",         [](H& h) { add_tensor(h, {32}, 255); }},
    {"UnknownTypeMax",      "odd.weight",         [](H& h) { add_tensor(h, {32}, ~std::uint32_t{0}); }},
    {"OffsetPastTheEnd",    "odd.weight",         [](H& h) { add_tensor(h, {32}, kF32, std::uint64_t{1} << 40); }},
    {"OffsetWraps",         "odd.weight",         [](H& h) { add_tensor(h, {32}, kF32, kEnd - 63); }},
    {"OffsetUnaligned",     "odd.weight",         [](H& h) { add_tensor(h, {32}, kF32, 7); }},
    {"TensorsOverlap",      "odd.weight",         overlap},
    {"DataMissing",         "odd.weight",         [](H& h) { add_tensor(h, {32}); h.data_bytes = 64; }},
};
// clang-format on

}  // namespace

std::span<const GgufFault> gguf_faults() { return kFaults; }

}  // namespace plimsoll::test
