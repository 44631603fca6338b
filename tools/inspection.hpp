#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/gguf.hpp"
#include "planner/model.hpp"

namespace plimsoll {

/// A tensor as a header or an inventory has it.
struct InspectedTensor {
    std::string name;
    std::string_view class_name;  // "embedding", "dense", "experts", "unused"; "all" of no model
    TensorType type = TensorType::f32;
    std::vector<std::uint64_t> dims;      // row length first
    std::uint64_t file_offset_bytes = 0;  // absolute; of an inventory, in the data section
    std::uint64_t size_bytes = 0;
};

/// Tensors of one class and type, added up.
struct TensorSum {
    std::string_view class_name;
    TensorType type = TensorType::f32;
    std::uint64_t count = 0;
    std::uint64_t size_bytes = 0;
};

/// Neighbouring layers whose experts are equal in size.
struct ExpertRange {
    std::int32_t first_layer = 0;
    std::int32_t last_layer = 0;  // inclusive
    ExpertSize size;
};

/// A value of metadata or a hyperparameter, for people.
struct NamedValue {
    std::string name;
    std::string type;  // "u32", "string[129,280]"
    std::string value;
};

/// All that can be told of a model without reading its weights.
struct Inspection {
    std::optional<GgufFile> file;  // none of an inventory
    std::optional<Model> model;    // none where the file is not of a supported model
    std::string problem;           // why there is no model
    std::vector<InspectedTensor> tensors;
    std::vector<TensorSum> sums;
    std::vector<ExpertRange> experts;
};

/// Reads a file's header or an inventory, as `load_model` finds it. An error where there is neither
/// a checked header nor a model.
[[nodiscard]] Result<Inspection> inspect_model(const std::string& text,
                                               const std::string& config_dir);

/// Every key of the file; values cut to a line, tables of many elements told by their length.
[[nodiscard]] std::vector<NamedValue> metadata_of(const GgufFile& file);

/// What `model` has by its kind, under the names that inventories use.
[[nodiscard]] std::vector<NamedValue> hyperparameters_of(const Model& model);

/// For people, at most `columns` wide where words allow; `all_tensors` adds a line for each.
[[nodiscard]] std::string inspection_text(const Inspection& inspection, bool all_tensors,
                                          std::size_t columns);

/// One JSON object with the same facts, byte counts as numbers.
[[nodiscard]] std::string inspection_json(const Inspection& inspection, bool all_tensors);

}  // namespace plimsoll
