#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "runtime/tokenizer.hpp"

namespace plimsoll::test {

/// A JSON file of tests/data.
inline nlohmann::json read_test_json(const std::string& name) {
    std::ifstream file(std::string(PLIMSOLL_TEST_DATA) + "/" + name);
    if (!file) throw std::runtime_error("no test data " + name);
    return nlohmann::json::parse(file);
}

/// Tables of the trained BPE of a few hundred merges.
inline TokenizerTables small_tables() {
    const auto json = read_test_json("tokenizer/small_bpe.json");
    return {.tokens = json.at("tokens"),
            .merges = json.at("merges"),
            .token_types = json.at("token_types")};
}

inline Tokenizer small_tokenizer() {
    auto tokenizer = Tokenizer::create(small_tables());
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return std::move(tokenizer).value();
}

}  // namespace plimsoll::test
