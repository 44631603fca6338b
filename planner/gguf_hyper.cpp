#include "planner/gguf_hyper.hpp"

#include <fmt/format.h>

#include <optional>

#include "planner/check.hpp"
#include "planner/hyper_fields.hpp"
#include "planner/tensor_table.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kPrefix = "deepseek4.";

std::string quoted(std::string_view key) { return fmt::format("key '{}'", key); }

/// A field of files that may lack its key.
struct DefaultField {
    std::string_view gguf_key;
    double value;
};
// What the family's own configurations have.
constexpr DefaultField kDefaults[] = {
    {"rope.scaling.yarn_beta_fast", 32},
    {"rope.scaling.yarn_beta_slow", 1},
};

/// Parts of the model that are the same in the whole family: a file that says otherwise is of
/// another dialect.
struct FixedKey {
    std::string_view gguf_key;
    std::uint64_t value;
    bool required;
};
constexpr FixedKey kFixedKeys[] = {
    {"attention.head_count_kv", 1, true}, {"expert_shared_count", 1, true},
    {"expert_group_count", 0, false},     {"expert_group_used_count", 0, false},
    {"expert_gating_func", 4, false},  // square root of softplus
};

void read_integer(const HyperField& field, const GgufEntry& entry, std::uint32_t& out,
                  ProblemList& problems) {
    const auto* value = std::get_if<std::uint64_t>(&entry.value);
    const bool typed = entry.type == GgufValueType::u32 ||
                       (field.wide_in_gguf && entry.type == GgufValueType::u64);
    if (!value || !typed) {
        problems.add(quoted(entry.key) +
                     (field.wide_in_gguf ? ": must be u32 or u64" : ": must be u32"));
        return;
    }
    if (const std::string problem = range_problem(field, static_cast<double>(*value));
        !problem.empty()) {
        problems.add(quoted(entry.key) + " " + problem);
        return;
    }
    out = static_cast<std::uint32_t>(*value);
}

void read_float(const HyperField& field, const GgufEntry& entry, float& out,
                ProblemList& problems) {
    double value = 0;
    if (const auto* real = std::get_if<double>(&entry.value)) {
        value = *real;
    } else if (entry.type == GgufValueType::u32) {
        value = static_cast<double>(std::get<std::uint64_t>(entry.value));
    } else if (entry.type == GgufValueType::i32) {
        value = static_cast<double>(std::get<std::int64_t>(entry.value));
    } else {
        problems.add(quoted(entry.key) + ": must be a number");
        return;
    }
    if (const std::string problem = range_problem(field, value); !problem.empty()) {
        problems.add(quoted(entry.key) + " " + problem);
        return;
    }
    out = static_cast<float>(value);
}

std::optional<double> default_of(const HyperField& field) {
    for (const DefaultField& row : kDefaults)
        if (row.gguf_key == field.gguf_key) return row.value;
    return std::nullopt;
}

void read_field(const GgufFile& file, const HyperField& field, Hyperparameters& hyper,
                ProblemList& problems) {
    const std::string key = std::string(kPrefix) + std::string(field.gguf_key);
    const GgufEntry* entry = file.find(key);
    if (!entry) {
        const std::optional<double> value = default_of(field);
        auto* real = std::get_if<float Hyperparameters::*>(&field.member);
        if (value && real)
            hyper.*(*real) = static_cast<float>(*value);
        else
            problems.miss_key(key);
        return;
    }
    if (const auto* integer = std::get_if<std::uint32_t Hyperparameters::*>(&field.member))
        read_integer(field, *entry, hyper.*(*integer), problems);
    else
        read_float(field, *entry, hyper.*std::get<float Hyperparameters::*>(field.member),
                   problems);
}

void check_fixed_keys(const GgufFile& file, const Hyperparameters& hyper, ProblemList& problems) {
    for (const FixedKey& fixed : kFixedKeys) {
        const std::string key = std::string(kPrefix) + std::string(fixed.gguf_key);
        const GgufEntry* entry = file.find(key);
        if (!entry) {
            if (fixed.required) problems.miss_key(key);
            continue;
        }
        const auto* value = std::get_if<std::uint64_t>(&entry->value);
        if (!value || *value != fixed.value)
            problems.add(fmt::format("{}: must be {}", quoted(key), fixed.value));
    }
    const std::string norm = std::string(kPrefix) + "expert_weights_norm";
    if (const GgufEntry* entry = file.find(norm); !entry) {
        problems.miss_key(norm);
    } else if (const auto* value = std::get_if<bool>(&entry->value); !value || !*value) {
        problems.add(quoted(norm) + ": must be true");
    }
    const std::string value_length = std::string(kPrefix) + "attention.value_length";
    if (const GgufEntry* entry = file.find(value_length)) {
        const auto* value = std::get_if<std::uint64_t>(&entry->value);
        if (!value || *value != hyper.head_dim)
            problems.add(fmt::format("{}: must equal the key length {}", quoted(value_length),
                                     hyper.head_dim));
    } else {
        problems.miss_key(value_length);
    }
}

/// True where an array of at least one value a layer is there; says what is wrong otherwise.
bool is_per_layer(const GgufFile& file, const std::string& key, const Hyperparameters& hyper,
                  ProblemList& problems) {
    const GgufEntry* entry = file.find(key);
    if (!entry) {
        problems.miss_key(key);
        return false;
    }
    const auto* array = std::get_if<GgufArray>(&entry->value);
    // The longest list seen has one value more, for the draft head. Nothing is read of an absurd
    // one.
    constexpr std::uint64_t kExtraMax = 64;
    if (array && array->count >= hyper.n_layers && array->count <= hyper.n_layers + kExtraMax)
        return true;
    problems.add(fmt::format("{}: must be an array with a value for each of {} layers", quoted(key),
                             hyper.n_layers));
    return false;
}

void read_layer_lists(const GgufFile& file, Hyperparameters& hyper, ProblemList& problems) {
    const std::string ratios_key = std::string(kPrefix) + "attention.compress_ratios";
    if (is_per_layer(file, ratios_key, hyper, problems)) {
        const Result<std::vector<std::int64_t>> ratios = read_integers(file, ratios_key);
        if (!ratios) return problems.add(quoted(ratios_key) + ": must hold integers");
        for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer) {
            // Anything out of range becomes one value that no layer may have.
            const std::int64_t ratio = (*ratios)[layer];
            hyper.compress_ratios.push_back(
                ratio < 0 || ratio > 1024 ? 1025 : static_cast<std::uint32_t>(ratio));
        }
    }
    const std::string clamp_key = std::string(kPrefix) + "swiglu_clamp_exp";
    if (is_per_layer(file, clamp_key, hyper, problems)) {
        const Result<std::vector<double>> clamps = read_floats(file, clamp_key);
        if (!clamps) return problems.add(quoted(clamp_key) + ": must hold floats");
        for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer)
            hyper.swiglu_clamp.push_back(static_cast<float>((*clamps)[layer]));
    }
}

/// Presence, type and length; the words are the tokenizer's business.
void check_token_tables(const GgufFile& file, const Hyperparameters& hyper, ProblemList& problems) {
    constexpr std::uint64_t kAnyCount = 0;
    const auto check = [&](const char* key, GgufValueType element_type, std::uint64_t count) {
        const GgufEntry* entry = file.find(key);
        if (!entry) return problems.miss_key(key);
        const auto* array = std::get_if<GgufArray>(&entry->value);
        if (!array || array->element_type != element_type)
            problems.add(fmt::format("{}: must be an array of {}", quoted(key),
                                     element_type == GgufValueType::string ? "strings" : "i32"));
        else if (count != kAnyCount && array->count != count)
            problems.add(fmt::format("{}: has {} entries, the vocabulary {}", quoted(key),
                                     array->count, count));
    };
    check("tokenizer.ggml.tokens", GgufValueType::string, hyper.vocab_size);
    check("tokenizer.ggml.token_type", GgufValueType::i32, hyper.vocab_size);
    check("tokenizer.ggml.merges", GgufValueType::string, kAnyCount);
}

void add_rule_problems(ModelKind kind, const Hyperparameters& hyper, ProblemList& problems) {
    if (!problems.empty()) return;
    std::vector<std::string> broken;
    check_hyperparameters(kind, hyper, broken);
    for (std::string& problem : broken) problems.add(std::move(problem));
}

/// One hyperparameter of a draft head: where its tensors show it.
struct DimSource {
    std::uint32_t Hyperparameters::*member;
    TensorRole role;
    std::size_t dim;
};
constexpr DimSource kDraftDims[] = {
    {&Hyperparameters::hidden_size, TensorRole::attn_norm, 0},
    {&Hyperparameters::n_streams, TensorRole::mtp_hc_head_base, 0},
    {&Hyperparameters::n_heads, TensorRole::attn_sinks, 0},
    {&Hyperparameters::head_dim, TensorRole::attn_kv_a_norm, 0},
    {&Hyperparameters::q_lora_rank, TensorRole::attn_q_a_norm, 0},
    {&Hyperparameters::n_experts, TensorRole::exp_probs_b, 0},
    {&Hyperparameters::expert_ff_dim, TensorRole::ffn_gate_shexp, 1},
};

const HyperField& field_of(std::uint32_t Hyperparameters::*member) {
    for (const HyperField& field : hyper_fields())
        if (const auto* own = std::get_if<std::uint32_t Hyperparameters::*>(&field.member);
            own && *own == member)
            return field;
    PLIMSOLL_CHECK(false, "a hyperparameter without a row");
}

const GgufTensor* find_tensor(const GgufFile& file, TensorRole role) {
    const std::string name = tensor_name(ModelKind::mtp, role, 0);
    for (const GgufTensor& tensor : file.tensors)
        if (tensor.name == name) return &tensor;
    return nullptr;
}

/// Sets a member from a tensor's dim, range checked.
void take_dim(const GgufFile& file, const DimSource& source, Hyperparameters& hyper,
              ProblemList& problems) {
    const GgufTensor* tensor = find_tensor(file, source.role);
    if (!tensor) return problems.miss_tensor(0, info_of(source.role).suffix, "mtp");
    if (tensor->dims.size() <= source.dim)
        return problems.add(
            fmt::format("tensor '{}': has only {} dims", tensor->name, tensor->dims.size()));
    const std::uint64_t value = tensor->dims[source.dim];
    if (const std::string problem =
            range_problem(field_of(source.member), static_cast<double>(value));
        !problem.empty())
        return problems.add(
            fmt::format("tensor '{}': dim {} {}", tensor->name, source.dim, problem));
    hyper.*source.member = static_cast<std::uint32_t>(value);
}

/// The first output projection is [heads * head_dim / groups, rank * groups].
void take_output_groups(const GgufFile& file, Hyperparameters& hyper, ProblemList& problems) {
    const GgufTensor* tensor = find_tensor(file, TensorRole::attn_output_a);
    if (!tensor) return problems.miss_tensor(0, info_of(TensorRole::attn_output_a).suffix, "mtp");
    const std::uint64_t attention_width = std::uint64_t{hyper.n_heads} * hyper.head_dim;
    const auto& dims = tensor->dims;
    const std::uint64_t groups = attention_width / dims[0];
    const auto in_range = [](std::uint32_t Hyperparameters::*member, std::uint64_t value) {
        return range_problem(field_of(member), static_cast<double>(value)).empty();
    };
    if (dims.size() != 2 || attention_width % dims[0] != 0 ||
        !in_range(&Hyperparameters::n_output_groups, groups) || dims[1] % groups != 0 ||
        !in_range(&Hyperparameters::output_lora_rank, dims[1] / groups))
        return problems.add(fmt::format("tensor '{}': dims [{}] do not divide {} heads of {}",
                                        tensor->name, fmt::join(dims, ", "), hyper.n_heads,
                                        hyper.head_dim));
    hyper.n_output_groups = static_cast<std::uint32_t>(groups);
    hyper.output_lora_rank = static_cast<std::uint32_t>(dims[1] / groups);
}

}  // namespace

Hyperparameters hyper_from_metadata(const GgufFile& file, ProblemList& problems) {
    Hyperparameters hyper;
    for (const HyperField& field : hyper_fields()) read_field(file, field, hyper, problems);
    check_fixed_keys(file, hyper, problems);
    if (hyper.n_layers > 0) read_layer_lists(file, hyper, problems);
    check_token_tables(file, hyper, problems);
    add_rule_problems(ModelKind::main, hyper, problems);
    return hyper;
}

Hyperparameters hyper_from_draft_head(const GgufFile& file, ProblemList& problems) {
    Hyperparameters hyper;
    for (const DimSource& source : kDraftDims) take_dim(file, source, hyper, problems);
    if (problems.empty()) take_output_groups(file, hyper, problems);
    add_rule_problems(ModelKind::mtp, hyper, problems);
    return hyper;
}

}  // namespace plimsoll
