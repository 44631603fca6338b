#include <fmt/format.h>

#include <algorithm>

#include "planner/units.hpp"
#include "tools/inspection.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

std::string bytes_text(std::uint64_t bytes) {
    return fmt::format("{} bytes ({})", format_count(bytes), format_bytes(bytes));
}

/// "name   type   value", the columns as wide as the widest; values wrap under themselves.
std::string values_text(const std::vector<NamedValue>& values, std::size_t columns) {
    std::size_t name_columns = 0, type_columns = 0;
    for (const NamedValue& value : values) {
        name_columns = std::max(name_columns, value.name.size());
        type_columns = std::max(type_columns, value.type.size());
    }
    std::string out;
    for (const NamedValue& value : values) {
        std::string first = "  " + padded(value.name, name_columns + 2);
        if (type_columns > 0) first += padded(value.type, type_columns + 2);
        std::string lines = hanging(first, value.value, columns);
        if (value.value.empty()) lines = first.erase(first.find_last_not_of(' ') + 1) + "\n";
        out += lines;
    }
    return out;
}

std::string title_of(const Inspection& inspection) {
    const std::string count = format_count(inspection.tensors.size());
    if (!inspection.model) return fmt::format("A GGUF file, {} tensors\n", count);
    const Model& model = *inspection.model;
    return fmt::format("{}: DeepSeek-V4 {}, {} tensors, {}{}\n", model.name,
                       model.kind == ModelKind::main ? "model" : "draft head", count,
                       format_bytes(model.data_bytes),
                       model.published ? "" : " (derived: no such file is published)");
}

std::string file_text(const GgufFile& file, std::size_t columns) {
    const std::uint64_t data_bytes = file.source.size_bytes - file.data_offset_bytes;
    std::string out = values_text(
        {
            {"file", "", file.path},
            {"size", "", bytes_text(file.source.size_bytes)},
            {"data", "",
             fmt::format("{} from offset {}", bytes_text(data_bytes),
                         format_count(file.data_offset_bytes))},
            {"alignment", "", fmt::format("{} bytes", format_count(file.alignment_bytes))},
        },
        columns);
    out += fmt::format("\nMetadata: {} keys\n", format_count(file.metadata.size()));
    return out + values_text(metadata_of(file), columns);
}

std::string sums_text(const std::vector<TensorSum>& sums) {
    constexpr std::size_t kClassColumns = 11, kTypeColumns = 9, kCountColumns = 7,
                          kBytesColumns = 19, kShortColumns = 13;
    const auto row = [&](std::string_view class_name, std::string_view type, std::string_view count,
                         std::string_view bytes, std::string_view rounded) {
        std::string line = "  " + padded(class_name, kClassColumns) + padded(type, kTypeColumns) +
                           right_aligned(count, kCountColumns) +
                           right_aligned(bytes, kBytesColumns);
        if (!rounded.empty()) line += right_aligned(rounded, kShortColumns);
        return line + "\n";
    };
    const auto sum_row = [&](std::string_view class_name, std::string_view type,
                             std::uint64_t count, std::uint64_t bytes) {
        return row(class_name, type, format_count(count), format_count(bytes), format_bytes(bytes));
    };
    std::string out = "\nTensors\n" + row("class", "type", "count", "bytes", "");
    std::uint64_t count = 0, size_bytes = 0;
    for (const TensorSum& sum : sums) {
        out += sum_row(sum.class_name, info_of(sum.type).name, sum.count, sum.size_bytes);
        count += sum.count;
        size_bytes += sum.size_bytes;
    }
    return out + sum_row("total", "", count, size_bytes);
}

std::string experts_text(const std::vector<ExpertRange>& ranges) {
    if (ranges.empty()) return "";
    std::string out = "\nOne expert\n";
    for (const ExpertRange& range : ranges) {
        const std::string layers =
            range.first_layer == range.last_layer
                ? fmt::format("layer {}", range.first_layer)
                : fmt::format("layers {} to {}", range.first_layer, range.last_layer);
        out += fmt::format(
            "  {}: {} bytes (gate {}, up {}, down {}), {} in a slot\n", layers,
            format_count(range.size.gate_bytes + range.size.up_bytes + range.size.down_bytes),
            format_count(range.size.gate_bytes), format_count(range.size.up_bytes),
            format_count(range.size.down_bytes), format_count(range.size.slot_bytes));
    }
    return out;
}

std::string tensors_text(const std::vector<InspectedTensor>& tensors) {
    std::size_t name_columns = 0;
    for (const InspectedTensor& tensor : tensors)
        name_columns = std::max(name_columns, printable(tensor.name).size());
    std::string out = "\nEvery tensor: type, dims, bytes, offset\n";
    for (const InspectedTensor& tensor : tensors)
        out += fmt::format("  {}  {:7}  {:20}  {:>16}  {:>16}\n",
                           padded(printable(tensor.name), name_columns), info_of(tensor.type).name,
                           fmt::format("[{}]", fmt::join(tensor.dims, ", ")),
                           format_count(tensor.size_bytes), format_count(tensor.file_offset_bytes));
    return out;
}

}  // namespace

std::string inspection_text(const Inspection& inspection, bool all_tensors, std::size_t columns) {
    std::string out = title_of(inspection);
    if (inspection.file) out += file_text(*inspection.file, columns);
    if (inspection.model)
        out += "\nHyperparameters\n" + values_text(hyperparameters_of(*inspection.model), columns);
    out += sums_text(inspection.sums) + experts_text(inspection.experts);
    if (inspection.model)
        for (const std::string& note : inspection.model->notes)
            out += hanging("\nNote: ", note, columns);
    if (all_tensors) out += tensors_text(inspection.tensors);
    return out;
}

}  // namespace plimsoll
