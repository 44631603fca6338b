#include "tests/planner/model_header.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <variant>

#include "planner/hyper_fields.hpp"
#include "planner/units.hpp"

namespace plimsoll::test {
namespace {

template <class T>
std::string elements_of(const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += number(value);
    return bytes;
}

void add_hyperparameters(const Hyperparameters& hyper, RawHeader& header) {
    for (const HyperField& field : hyper_fields()) {
        const std::string key = "deepseek4." + std::string(field.gguf_key);
        if (const auto* real = std::get_if<float Hyperparameters::*>(&field.member))
            header.set_f32(key, hyper.*(*real));
        else
            header.set_u32(key, hyper.*std::get<std::uint32_t Hyperparameters::*>(field.member));
    }
    header.set_u32("deepseek4.attention.head_count_kv", 1);
    header.set_u32("deepseek4.attention.value_length", hyper.head_dim);
    header.set_u32("deepseek4.expert_shared_count", 1);
    header.set("deepseek4.expert_weights_norm", GgufValueType::boolean, number(std::uint8_t{1}));
    header.set("deepseek4.attention.compress_ratios", GgufValueType::array,
               array_bytes(GgufValueType::i32, hyper.compress_ratios.size(),
                           elements_of(hyper.compress_ratios)));
    header.set("deepseek4.swiglu_clamp_exp", GgufValueType::array,
               array_bytes(GgufValueType::f32, hyper.swiglu_clamp.size(),
                           elements_of(hyper.swiglu_clamp)));
}

void add_token_tables(std::uint32_t vocab_size, RawHeader& header) {
    std::string words, merges;
    for (std::uint32_t word = 0; word < vocab_size; ++word)
        words += counted(fmt::format("w{}", word));
    for (std::uint32_t word = 1; word < vocab_size; ++word)
        merges += counted(fmt::format("w {}", word));
    const std::vector<std::int32_t> types(vocab_size, 1);
    header.set("tokenizer.ggml.tokens", GgufValueType::array,
               array_bytes(GgufValueType::string, vocab_size, words));
    header.set("tokenizer.ggml.token_type", GgufValueType::array,
               array_bytes(GgufValueType::i32, vocab_size, elements_of(types)));
    header.set("tokenizer.ggml.merges", GgufValueType::array,
               array_bytes(GgufValueType::string, vocab_size - 1, merges));
}

}  // namespace

Inventory inventory_of(const std::string& name) {
    const std::string path = fmt::format("{}/models/{}.yaml", PLIMSOLL_CONFIGS, name);
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    Result<Inventory> inventory = parse_inventory(text.str(), path);
    if (!inventory) throw std::runtime_error(inventory.error().message);
    return std::move(*inventory);
}

Inventory small_inventory() {
    Inventory inventory = inventory_of("tiny");
    inventory.name = "small";
    inventory.data_bytes = 0;
    inventory.hyper.n_layers = 2;
    inventory.hyper.n_hash_layers = 1;
    inventory.hyper.vocab_size = 300;
    inventory.hyper.compress_ratios = {4, 128};
    inventory.hyper.swiglu_clamp = {10, 10};
    return inventory;
}

RawHeader model_header(const Inventory& inventory) {
    RawHeader header;
    const bool main = inventory.kind == ModelKind::main;
    header.set_string("general.architecture", main ? "deepseek4" : "deepseek4_mtp_support");
    if (main) {
        add_hyperparameters(inventory.hyper, header);
        add_token_tables(inventory.hyper.vocab_size, header);
    }
    for (const Tensor& tensor : tensors_of(inventory.kind, inventory.hyper, inventory.storage)) {
        header.tensors.push_back({.name = tensor.name,
                                  .dims = tensor.dims,
                                  .type = static_cast<std::uint32_t>(tensor.type),
                                  .offset_bytes = tensor.file_offset_bytes});
        header.data_bytes =
            align_up(tensor.file_offset_bytes + tensor.size_bytes, kFileAlignmentBytes);
    }
    return header;
}

}  // namespace plimsoll::test
