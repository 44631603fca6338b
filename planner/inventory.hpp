#pragma once

#include <string>
#include <string_view>

#include "planner/model.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// A model without weights: shape and storage, enough for planning and for making a synthetic file.
struct Inventory {
    std::string name;
    std::string description;
    ModelKind kind = ModelKind::main;
    bool published = true;  // false: derived by the same rules, no such file is known
    Hyperparameters hyper;
    StorageRecipe storage;
    std::uint64_t data_bytes =
        0;  // of a file's data section, as the inventory states it; 0: unstated
};

/// Reads a file of `configs/models/`. The schema is closed; errors are "source:line: message".
[[nodiscard]] Result<Inventory> parse_inventory(std::string_view text, const std::string& source);

/// The model an inventory describes. An error where its tensors do not add up to `data_bytes`.
[[nodiscard]] Result<Model> model_from_inventory(const Inventory& inventory);

}  // namespace plimsoll
