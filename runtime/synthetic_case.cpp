#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/hyper_fields.hpp"
#include "runtime/synthetic_model.hpp"

namespace plimsoll {
namespace {

// The order of a recipe's entries matters: the first that matches decides.
using Json = nlohmann::ordered_json;

Error in_case(const std::string& source, std::string problem) {
    return {ErrorKind::bad_file, fmt::format("{}: {}", source, problem)};
}

/// A number per layer: a list of at least as many, or one for all.
Result<std::vector<double>> layer_values(const Json& config, const char* key,
                                         std::size_t n_layers) {
    const Json& value = config.value(key, Json());
    if (value.is_number()) return std::vector<double>(n_layers, value.get<double>());
    if (!value.is_array() || value.size() < n_layers)
        return Error{
            ErrorKind::bad_file,
            fmt::format("config.{} must hold a number for each of {} layers", key, n_layers)};
    std::vector<double> out;
    for (std::size_t layer = 0; layer < n_layers; ++layer) {
        if (!value[layer].is_number())
            return Error{ErrorKind::bad_file, fmt::format("config.{} must hold numbers", key)};
        out.push_back(value[layer].get<double>());
    }
    return out;
}

Status read_field(const Json& config, const HyperField& field, Hyperparameters& hyper) {
    const auto at = config.find(std::string(field.config_key));
    if (at == config.end() || !at->is_number())
        return Error{ErrorKind::bad_file,
                     fmt::format("config.{} is missing or no number", field.config_key)};
    const double value = at->get<double>();
    if (const std::string problem = range_problem(field, value); !problem.empty())
        return Error{ErrorKind::bad_file, fmt::format("config.{} {}", field.config_key, problem)};
    if (const auto* whole = std::get_if<std::uint32_t Hyperparameters::*>(&field.member)) {
        if (value != std::floor(value))
            return Error{ErrorKind::bad_file,
                         fmt::format("config.{} must be a whole number", field.config_key)};
        hyper.*(*whole) = static_cast<std::uint32_t>(value);
    } else {
        hyper.*std::get<float Hyperparameters::*>(field.member) = static_cast<float>(value);
    }
    return ok_status();
}

Result<Hyperparameters> read_config(const Json& config) {
    Hyperparameters hyper;
    for (const HyperField& field : hyper_fields())
        if (const Status read = read_field(config, field, hyper); !read) return read.error();
    const auto clamps = layer_values(config, "swiglu_clamp", hyper.n_layers);
    if (!clamps) return clamps.error();
    const auto ratios = layer_values(config, "compress_ratios", hyper.n_layers);
    if (!ratios) return ratios.error();
    for (const double clamp : *clamps) hyper.swiglu_clamp.push_back(static_cast<float>(clamp));
    for (const double ratio : *ratios)
        hyper.compress_ratios.push_back(
            static_cast<std::uint32_t>(ratio >= 0 && ratio <= 1024 ? ratio : 1025));
    std::vector<std::string> problems;
    check_hyperparameters(ModelKind::main, hyper, problems);
    if (!problems.empty())
        return Error{ErrorKind::bad_file, fmt::format("config: {}", fmt::join(problems, "; "))};
    return hyper;
}

Result<StorageRecipe> read_recipe(const Json& recipe) {
    StorageRecipe storage;
    bool has_default = false;
    for (const auto& [part, value] : recipe.items()) {
        const TensorTypeInfo* type =
            value.is_string() ? find_tensor_type(value.get_ref<const std::string&>()) : nullptr;
        if (type == nullptr || type->type == TensorType::i32)
            return Error{ErrorKind::bad_file, fmt::format("recipe.{} is no tensor type", part)};
        if (part == "default") {
            storage.fallback = type->type;
            has_default = true;
        } else {
            storage.rules.emplace_back(part, type->type);
        }
    }
    if (!has_default) return Error{ErrorKind::bad_file, "recipe.default is missing"};
    return storage;
}

}  // namespace

Result<SyntheticCase> parse_case(std::string_view text, const std::string& source) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return in_case(source, "not a JSON object");
    for (const char* key : {"config", "recipe"})
        if (!json.contains(key) || !json[key].is_object())
            return in_case(source, fmt::format("{} is missing or no object", key));
    if (!json.contains("seed") || !json["seed"].is_number_unsigned())
        return in_case(source, "seed is missing or no whole number");
    const Result<Hyperparameters> hyper = read_config(json["config"]);
    if (!hyper) return in_case(source, hyper.error().message);
    const Result<StorageRecipe> storage = read_recipe(json["recipe"]);
    if (!storage) return in_case(source, storage.error().message);
    std::string name = "case";
    if (json.contains("name") && json["name"].is_string()) name = json["name"].get<std::string>();
    SyntheticCase out{.seed = json["seed"].get<std::uint64_t>()};
    out.main = {.name = name,
                .kind = ModelKind::main,
                .published = false,
                .hyper = *hyper,
                .storage = *storage};
    out.mtp = {.name = name + "-mtp",
               .kind = ModelKind::mtp,
               .published = false,
               .hyper = *hyper,
               .storage = *storage};
    return out;
}

}  // namespace plimsoll
