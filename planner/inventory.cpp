#include "planner/inventory.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "planner/hyper_fields.hpp"
#include "planner/tensor_table.hpp"
#include "planner/units.hpp"
#include "planner/yaml_tree.hpp"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 2> kKindNames = {"main", "mtp"};

std::optional<double> number_of(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::scalar || node.quoted) return std::nullopt;
    double value = 0;
    const char* const end = node.scalar.data() + node.scalar.size();
    const auto [at, problem] = std::from_chars(node.scalar.data(), end, value);
    if (problem != std::errc{} || at != end) return std::nullopt;
    return value;
}

void read_field(YamlReader& reader, const HyperField& field, Hyperparameters& hyper) {
    double value = 0;
    reader.require(field.config_key).real(field.config_key, value, field.min, field.max);
    if (reader.failed()) return;
    if (const auto* real = std::get_if<float Hyperparameters::*>(&field.member)) {
        hyper.*(*real) = static_cast<float>(value);
        return;
    }
    const auto whole = static_cast<std::uint32_t>(value);
    if (static_cast<double>(whole) != value)
        reader.fail(reader.line(), fmt::format("'{}' must be a whole number", field.config_key));
    hyper.*std::get<std::uint32_t Hyperparameters::*>(field.member) = whole;
}

/// One value a layer; more are allowed, as files have one for the draft head as well.
std::vector<double> read_layer_list(YamlReader& reader, std::string_view key,
                                    std::size_t n_layers) {
    std::vector<double> out;
    const YamlNode* node = reader.require(key).child(key);
    if (node == nullptr) return out;
    if (const auto value = number_of(*node)) return std::vector<double>(n_layers, *value);
    if (node->kind != YamlNode::Kind::sequence || node->items.size() < n_layers) {
        reader.fail(node->line,
                    fmt::format("'{}' must list a number for each of {} layers", key, n_layers));
        return out;
    }
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
        const auto value = number_of(node->items[layer]);
        if (!value) {
            reader.fail(node->items[layer].line, fmt::format("'{}' must hold numbers", key));
            return out;
        }
        out.push_back(*value);
    }
    return out;
}

void read_layer_lists(YamlReader& reader, Hyperparameters& hyper) {
    for (const double clamp : read_layer_list(reader, "swiglu_clamp", hyper.n_layers))
        hyper.swiglu_clamp.push_back(static_cast<float>(clamp));
    constexpr double kNoRatio = 1025;  // what no layer may have; `check_hyperparameters` names it
    for (const double ratio : read_layer_list(reader, "compress_ratios", hyper.n_layers))
        hyper.compress_ratios.push_back(
            static_cast<std::uint32_t>(ratio >= 0 && ratio <= 1024 ? ratio : kNoRatio));
}

Status read_hyper(const YamlNode& node, const std::string& source, ModelKind kind,
                  Hyperparameters& hyper) {
    YamlReader reader(node, source, "hyperparameters");
    for (const HyperField& field : hyper_fields())
        if (kind == ModelKind::main || field.in_mtp) read_field(reader, field, hyper);
    if (kind == ModelKind::main && !reader.failed()) read_layer_lists(reader, hyper);
    if (const Status done = reader.finish(); !done) return done;
    std::vector<std::string> problems;
    check_hyperparameters(kind, hyper, problems);
    if (problems.empty()) return ok_status();
    return yaml_error(source, node.line, fmt::format("{}", fmt::join(problems, "; ")));
}

Result<TensorType> read_type(const YamlNode& node, const std::string& source) {
    const TensorTypeInfo* info = find_tensor_type(std::string_view(node.scalar));
    if (info && node.kind == YamlNode::Kind::scalar) return info->type;
    return yaml_error(source, node.line, fmt::format("'{}' is not a tensor type", node.scalar));
}

Status read_rule(const YamlNode& node, const std::string& source, StorageRecipe& recipe) {
    YamlReader reader(node, source, "a storage rule");
    std::string part;
    reader.require("match").text("match", part);
    const YamlNode* type_node = reader.require("type").child("type");
    if (const Status done = reader.finish(); !done) return done;
    const Result<TensorType> type = read_type(*type_node, source);
    if (!type) return type.error();
    recipe.rules.emplace_back(std::move(part), *type);
    return ok_status();
}

Status read_storage(const YamlNode& node, const std::string& source, StorageRecipe& recipe) {
    if (node.kind != YamlNode::Kind::sequence)
        return yaml_error(source, node.line, "'storage' must be a list of {match, type}");
    for (const YamlNode& item : node.items)
        if (const Status read = read_rule(item, source, recipe); !read) return read;
    return ok_status();
}

}  // namespace

Result<Inventory> parse_inventory(std::string_view text, const std::string& source) {
    const Result<YamlNode> root = parse_yaml(text, source);
    if (!root) return root.error();
    Inventory inventory;
    YamlReader reader(*root, source, "a model inventory");
    std::size_t kind = 0;
    reader.require("name").text("name", inventory.name);
    reader.text("description", inventory.description);
    reader.require("kind").choice("kind", kind, kKindNames);
    reader.boolean("published", inventory.published).size("data_bytes", inventory.data_bytes);
    inventory.kind = static_cast<ModelKind>(kind);
    const YamlNode* hyper = reader.require("hyperparameters").child("hyperparameters");
    const YamlNode* storage = reader.require("storage").child("storage");
    const YamlNode* fallback = reader.require("default_type").child("default_type");
    if (const Status done = reader.finish(); !done) return done.error();
    if (const Status read = read_hyper(*hyper, source, inventory.kind, inventory.hyper); !read)
        return read.error();
    if (const Status read = read_storage(*storage, source, inventory.storage); !read)
        return read.error();
    const Result<TensorType> type = read_type(*fallback, source);
    if (!type) return type.error();
    inventory.storage.fallback = *type;
    return inventory;
}

Result<Model> model_from_inventory(const Inventory& inventory) {
    Model model;
    model.kind = inventory.kind;
    model.name = inventory.name;
    model.published = inventory.published;
    model.hyper = inventory.hyper;
    model.tensors = tensors_of(inventory.kind, inventory.hyper, inventory.storage);
    for (const Tensor& tensor : model.tensors)
        if (const std::string problem = storage_problem(tensor); !problem.empty())
            return Error{ErrorKind::bad_file,
                         fmt::format("inventory {}: {}", inventory.name, problem)};
    const Tensor& last = model.tensors.back();
    model.data_bytes = align_up(last.file_offset_bytes + last.size_bytes, kFileAlignmentBytes);
    if (inventory.data_bytes != 0 && inventory.data_bytes != model.data_bytes)
        return Error{ErrorKind::bad_file,
                     fmt::format("inventory {}: data_bytes is {}, its tensors add up to {}",
                                 inventory.name, inventory.data_bytes, model.data_bytes)};
    finish_model(model);
    return model;
}

}  // namespace plimsoll
