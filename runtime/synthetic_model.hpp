#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/inventory.hpp"
#include "planner/model.hpp"
#include "planner/result.hpp"

namespace plimsoll {

/// A model file to be made: its header, and whose weights follow where.
struct SyntheticModel {
    std::uint64_t seed = 1;
    Hyperparameters hyper;
    std::string header;
    std::vector<Tensor> tensors;  // offsets absolute, in the file
    std::uint64_t file_bytes = 0;
};

/// The file for a shape. A main model gets a tokenizer of its vocabulary's size. Errors: a
/// vocabulary too small for one, a number of experts that routing tables cannot be made for.
[[nodiscard]] Result<SyntheticModel> synthetic_model(const Inventory& shape, std::uint64_t seed);

/// A synthetic case: a seed, and one shape for the main model and the draft head.
struct SyntheticCase {
    std::uint64_t seed = 1;
    Inventory main;
    Inventory mtp;
};

/// Reads a case file: a JSON object with `name`, `seed`, `recipe` and `config`; what else it holds
/// is about results. Errors name `source` and the key.
[[nodiscard]] Result<SyntheticCase> parse_case(std::string_view text, const std::string& source);

}  // namespace plimsoll
