#include <fmt/format.h>

#include <algorithm>

#include "planner/hyper_fields.hpp"
#include "planner/units.hpp"
#include "tools/inspection.hpp"

namespace plimsoll {
namespace {

// A list of one value a layer is worth showing, a vocabulary is not.
constexpr std::uint64_t kShownElementsMax = 128;
constexpr std::uint64_t kShownWordsMax = 8;
constexpr std::uint64_t kShownBytesMax = 4096;

template <class Values>
std::string list_of(const Values& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
}

/// One value a layer; told once where all layers have the same.
template <class Values>
std::string layer_list_of(const Values& values) {
    if (!values.empty() && std::count(values.begin(), values.end(), values.front()) ==
                               static_cast<std::ptrdiff_t>(values.size()))
        return fmt::format("{} in every layer", values.front());
    return list_of(values);
}

std::string list_of(const StringTable& table) {
    std::vector<std::string> words;
    for (std::size_t index = 0; index < table.size(); ++index)
        words.push_back(fmt::format("\"{}\"", printable(table[index])));
    return list_of(words);
}

std::string elements_text(const GgufFile& file, const std::string& key, const GgufArray& array) {
    if (array.count > kShownElementsMax || array.size_bytes > kShownBytesMax) return "";
    switch (array.element_type) {
        case GgufValueType::array:
        case GgufValueType::boolean: return "";
        case GgufValueType::string: {
            if (array.count > kShownWordsMax) return "";
            const Result<StringTable> words = read_strings(file, key);
            return words ? list_of(*words) : "";
        }
        case GgufValueType::f32:
        case GgufValueType::f64: {
            const Result<std::vector<double>> reals = read_floats(file, key);
            return reals ? list_of(*reals) : "";
        }
        default: {
            const Result<std::vector<std::int64_t>> integers = read_integers(file, key);
            return integers ? list_of(*integers) : "";
        }
    }
}

NamedValue value_of(const GgufFile& file, const GgufEntry& entry) {
    NamedValue out{printable(entry.key), std::string(value_type_name(entry.type)), ""};
    if (const auto* array = std::get_if<GgufArray>(&entry.value)) {
        out.type =
            fmt::format("{}[{}]", value_type_name(array->element_type), format_count(array->count));
        out.value = elements_text(file, entry.key, *array);
    } else if (const auto* text = std::get_if<std::string>(&entry.value)) {
        out.value = printable(*text);
    } else if (const auto* flag = std::get_if<bool>(&entry.value)) {
        out.value = *flag ? "true" : "false";
    } else if (const auto* whole = std::get_if<std::uint64_t>(&entry.value)) {
        out.value = fmt::format("{}", *whole);
    } else if (const auto* integer = std::get_if<std::int64_t>(&entry.value)) {
        out.value = fmt::format("{}", *integer);
    } else if (entry.type == GgufValueType::f32) {
        // Stored as a float: printed as one, 1e-06 is not 9.999999974752427e-07.
        out.value = fmt::format("{}", static_cast<float>(std::get<double>(entry.value)));
    } else {
        out.value = fmt::format("{}", std::get<double>(entry.value));
    }
    return out;
}

}  // namespace

std::vector<NamedValue> metadata_of(const GgufFile& file) {
    std::vector<NamedValue> out;
    for (const GgufEntry& entry : file.metadata) out.push_back(value_of(file, entry));
    return out;
}

std::vector<NamedValue> hyperparameters_of(const Model& model) {
    std::vector<NamedValue> out;
    const bool main = model.kind == ModelKind::main;
    for (const HyperField& field : hyper_fields()) {
        if (!main && !field.in_mtp) continue;
        std::visit(
            [&](auto member) {
                out.push_back(
                    {std::string(field.config_key), "", fmt::format("{}", model.hyper.*member)});
            },
            field.member);
    }
    if (!main) return out;
    out.push_back({"swiglu_clamp", "", layer_list_of(model.hyper.swiglu_clamp)});
    out.push_back({"compress_ratios", "", layer_list_of(model.hyper.compress_ratios)});
    return out;
}

}  // namespace plimsoll
