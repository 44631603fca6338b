#include "runtime/synthetic_model.hpp"

#include <fmt/format.h>

#include "planner/hyper_fields.hpp"
#include "planner/units.hpp"
#include "runtime/gguf_writer.hpp"
#include "runtime/synthetic_tokenizer.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kPrefix = "deepseek4.";

void add_hyperparameters(GgufWriter& writer, const Hyperparameters& hyper) {
    const auto key = [](std::string_view name) { return fmt::format("{}{}", kPrefix, name); };
    for (const HyperField& field : hyper_fields()) {
        if (const auto* whole = std::get_if<std::uint32_t Hyperparameters::*>(&field.member))
            writer.add_u32(key(field.gguf_key), hyper.*(*whole));
        else
            writer.add_f32(key(field.gguf_key),
                           hyper.*std::get<float Hyperparameters::*>(field.member));
    }
    writer.add_u32(key("attention.head_count_kv"), 1);
    writer.add_u32(key("attention.value_length"), hyper.head_dim);
    writer.add_u32(key("expert_shared_count"), 1);
    writer.add_u32(key("expert_gating_func"), 4);  // square root of softplus
    writer.add_bool(key("expert_weights_norm"), true);
    writer.add_string(key("rope.scaling.type"), "yarn");
    writer.add_u32(key("nextn_predict_layers"), 1);
    // One value more than layers, as published files have for the draft head.
    std::vector<std::int32_t> ratios(hyper.compress_ratios.begin(), hyper.compress_ratios.end());
    ratios.push_back(0);
    writer.add_i32_array(key("attention.compress_ratios"), ratios);
    writer.add_f32_array(key("swiglu_clamp_exp"), hyper.swiglu_clamp);
}

Status add_tokenizer(GgufWriter& writer, std::uint32_t vocab_size) {
    const Result<TokenizerTables> tables = synthetic_tokenizer(vocab_size);
    if (!tables) return tables.error();
    writer.add_string("tokenizer.ggml.model", "gpt2");
    writer.add_string("tokenizer.ggml.pre", "joyai-llm");
    writer.add_string_array("tokenizer.ggml.tokens", tables->tokens);
    writer.add_i32_array("tokenizer.ggml.token_type", tables->token_types);
    writer.add_string_array("tokenizer.ggml.merges", tables->merges);
    writer.add_u32("tokenizer.ggml.bos_token_id", 0);
    writer.add_u32("tokenizer.ggml.eos_token_id", 1);
    writer.add_bool("tokenizer.ggml.add_bos_token", false);
    writer.add_bool("tokenizer.ggml.add_eos_token", false);
    return ok_status();
}

Status add_metadata(GgufWriter& writer, const Inventory& shape) {
    writer.add_string("general.name", fmt::format("{}, synthetic", shape.name));
    if (shape.kind == ModelKind::mtp) {
        writer.add_string("general.architecture", "deepseek4_mtp_support");
        writer.add_u32("deepseek4.expert_count", shape.hyper.n_experts);
        writer.add_u32("deepseek4.mtp_layer_count", 1);
        writer.add_u32("deepseek4.nextn_predict_layers", 1);
        return ok_status();
    }
    writer.add_string("general.architecture", "deepseek4");
    add_hyperparameters(writer, shape.hyper);
    return add_tokenizer(writer, shape.hyper.vocab_size);
}

}  // namespace

Result<SyntheticModel> synthetic_model(const Inventory& shape, std::uint64_t seed) {
    if (shape.kind == ModelKind::main && shape.hyper.n_hash_layers > 0 &&
        !is_power_of_two(shape.hyper.n_experts))
        return Error{
            ErrorKind::usage,
            fmt::format("{}: synthetic routing tables need a power of two of experts, not {}",
                        shape.name, shape.hyper.n_experts)};
    const Result<Model> described = model_from_inventory(shape);
    if (!described) return described.error();
    SyntheticModel model{.seed = seed, .hyper = shape.hyper, .tensors = described->tensors};
    GgufWriter writer;
    if (const Status added = add_metadata(writer, shape); !added) return added.error();
    for (const Tensor& tensor : model.tensors) writer.add_tensor(tensor);
    model.header = writer.finish();
    for (Tensor& tensor : model.tensors) tensor.file_offset_bytes += model.header.size();
    const Tensor& last = model.tensors.back();
    model.file_bytes = align_up(last.file_offset_bytes + last.size_bytes, kFileAlignmentBytes);
    return model;
}

}  // namespace plimsoll
