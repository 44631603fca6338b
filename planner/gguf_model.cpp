#include "planner/gguf_model.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <unordered_map>

#include "planner/gguf_hyper.hpp"
#include "planner/hyper_fields.hpp"
#include "planner/problem_list.hpp"
#include "planner/tensor_table.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kMainArchitecture = "deepseek4";
constexpr std::string_view kMtpArchitecture = "deepseek4_mtp_support";

std::string dims_text(const std::vector<std::uint64_t>& dims) {
    return fmt::format("[{}]", fmt::join(dims, ", "));
}

/// The kind of file, or a refusal of files that are not of this family.
Result<ModelKind> kind_of(const GgufFile& file) {
    const auto refuse = [&](std::string problem) {
        return Error{ErrorKind::bad_file, fmt::format("{}: {}", file.path, problem)};
    };
    if (const GgufEntry* split = file.find("split.count"))
        if (const auto* count = std::get_if<std::uint64_t>(&split->value); !count || *count > 1)
            return refuse("one part of a split file (key 'split.count'): join the parts first");
    const GgufEntry* entry = file.find("general.architecture");
    if (!entry) return refuse("key 'general.architecture' is missing");
    const auto* name = std::get_if<std::string>(&entry->value);
    if (!name) return refuse("key 'general.architecture' is not a string");
    if (*name == kMainArchitecture) return ModelKind::main;
    if (*name == kMtpArchitecture) return ModelKind::mtp;
    return refuse(fmt::format("key 'general.architecture': '{}' is not supported, only {} and {}",
                              printable(*name), kMainArchitecture, kMtpArchitecture));
}

/// Gate and up of a layer go through one product and must be stored alike.
void check_pairs(const Model& model, ProblemList& problems) {
    const auto compare = [&](TensorRole gate_role, TensorRole up_role, std::int32_t layer) {
        const Tensor* gate = model.find(gate_role, layer);
        const Tensor* up = model.find(up_role, layer);
        if (gate && up && gate->type != up->type)
            problems.add(fmt::format("tensors '{}' ({}) and '{}' ({}) must share a type",
                                     gate->name, info_of(gate->type).name, up->name,
                                     info_of(up->type).name));
    };
    const auto layers =
        static_cast<std::int32_t>(model.kind == ModelKind::main ? model.hyper.n_layers : 1);
    for (std::int32_t layer = 0; layer < layers; ++layer) {
        compare(TensorRole::ffn_gate_exps, TensorRole::ffn_up_exps, layer);
        compare(TensorRole::ffn_gate_shexp, TensorRole::ffn_up_shexp, layer);
    }
}

/// Fills `model.tensors`, in the order of the file, with those that the model has by its
/// hyperparameters.
void match_tensors(const GgufFile& file, Model& model, ProblemList& problems) {
    const std::vector<Tensor> expected = tensors_of(model.kind, model.hyper, StorageRecipe{});
    std::unordered_map<std::string_view, const Tensor*> by_name;
    for (const Tensor& tensor : expected) by_name.emplace(tensor.name, &tensor);
    std::uint64_t ignored = 0;
    std::string first_ignored;
    for (const GgufTensor& found : file.tensors) {
        const auto at = by_name.find(found.name);
        if (at == by_name.end()) {
            if (ignored++ == 0) first_ignored = printable(found.name);
            continue;
        }
        Tensor tensor = *at->second;
        tensor.type = found.type;
        tensor.file_offset_bytes = found.offset_bytes;
        tensor.size_bytes = found.size_bytes;
        if (found.dims != tensor.dims)
            problems.add(fmt::format("tensor '{}': dims {}, must be {}", found.name,
                                     dims_text(found.dims), dims_text(tensor.dims)));
        else if (std::string problem = storage_problem(tensor); !problem.empty())
            problems.add(std::move(problem));
        model.tensors.push_back(std::move(tensor));
        by_name.erase(at);
    }
    for (const Tensor& tensor : expected) {
        const TensorRoleInfo& role = info_of(tensor.role);
        const bool optional = role.optional && model.kind == ModelKind::main;
        if (by_name.contains(tensor.name) && !optional)
            problems.miss_tensor(tensor.layer, role.suffix,
                                 model.kind == ModelKind::main ? "blk" : "mtp");
    }
    if (ignored > 0)
        model.notes.push_back(fmt::format("{} tensor{} of the file {} of no use here, such as '{}'",
                                          format_count(ignored), ignored == 1 ? "" : "s",
                                          ignored == 1 ? "is" : "are", first_ignored));
}

}  // namespace

Result<Model> model_from_gguf(const GgufFile& file) {
    const Result<ModelKind> kind = kind_of(file);
    if (!kind) return kind.error();
    Model model;
    model.kind = *kind;
    model.path = file.path;
    model.name = std::filesystem::path(file.path).stem().string();
    model.file_bytes = file.source.size_bytes;
    model.data_offset_bytes = file.data_offset_bytes;
    model.data_bytes = file.source.size_bytes - file.data_offset_bytes;

    ProblemList problems;
    model.hyper = model.kind == ModelKind::main ? hyper_from_metadata(file, problems)
                                                : hyper_from_draft_head(file, problems);
    // Dims follow from the hyperparameters, so nothing can be said of tensors while those are
    // wrong.
    if (problems.empty()) match_tensors(file, model, problems);
    if (problems.empty()) {
        finish_model(model);
        check_pairs(model, problems);
    }
    if (!problems.empty())
        return Error{ErrorKind::bad_file, fmt::format("{}: {}", file.path, problems.text())};
    return model;
}

}  // namespace plimsoll
