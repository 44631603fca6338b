#pragma once

#include <cstdint>
#include <string>

#include "planner/inventory.hpp"
#include "tests/planner/gguf_bytes.hpp"

namespace plimsoll::test {

/// An inventory of configs/models, by name.
Inventory inventory_of(const std::string& name);

/// A small valid model whose header is a few kilobytes: two layers, 300 words.
Inventory small_inventory();

/// The header that a file of this model has: every key, tokenizer tables of the vocabulary's
/// length, every tensor. Valid as it is; tests spoil it.
RawHeader model_header(const Inventory& inventory);

}  // namespace plimsoll::test
