#include "tools/inspection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "planner/gguf_model.hpp"
#include "planner/hyper_fields.hpp"
#include "planner/tensor_table.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::string_view kUnused = "unused";
constexpr std::string_view kAll = "all";

// In the order of WeightClass.
constexpr std::string_view kClassNames[] = {"embedding", "dense", "experts"};

std::string_view class_name_of(const Tensor& tensor) {
    return kClassNames[static_cast<std::size_t>(info_of(tensor.role).weight_class)];
}

std::vector<InspectedTensor> tensors_of_model(const Model& model) {
    std::vector<InspectedTensor> out;
    for (const Tensor& tensor : model.tensors)
        out.push_back({tensor.name, class_name_of(tensor), tensor.type, tensor.dims,
                       tensor.file_offset_bytes, tensor.size_bytes});
    return out;
}

/// In the order of the file, with those that the model has no use for.
std::vector<InspectedTensor> tensors_of_file(const GgufFile& file, const Model* model) {
    std::unordered_map<std::string_view, std::string_view> class_of;
    if (model != nullptr)
        for (const Tensor& tensor : model->tensors)
            class_of.emplace(tensor.name, class_name_of(tensor));
    std::vector<InspectedTensor> out;
    for (const GgufTensor& tensor : file.tensors) {
        const auto at = class_of.find(tensor.name);
        const std::string_view class_name = model == nullptr       ? kAll
                                            : at == class_of.end() ? kUnused
                                                                   : at->second;
        out.push_back({tensor.name, class_name, tensor.type, tensor.dims, tensor.offset_bytes,
                       tensor.size_bytes});
    }
    return out;
}

/// By class in the order of WeightClass, the larger type first.
std::vector<TensorSum> sums_of(const std::vector<InspectedTensor>& tensors) {
    std::vector<TensorSum> out;
    for (const std::string_view class_name :
         {kClassNames[0], kClassNames[1], kClassNames[2], kUnused, kAll}) {
        std::map<TensorType, TensorSum> by_type;
        for (const InspectedTensor& tensor : tensors) {
            if (tensor.class_name != class_name) continue;
            TensorSum& sum = by_type[tensor.type];
            sum = {class_name, tensor.type, sum.count + 1, sum.size_bytes + tensor.size_bytes};
        }
        const auto first = static_cast<std::ptrdiff_t>(out.size());
        for (const auto& [type, sum] : by_type) out.push_back(sum);
        std::stable_sort(out.begin() + first, out.end(),
                         [](const auto& a, const auto& b) { return a.size_bytes > b.size_bytes; });
    }
    return out;
}

std::vector<ExpertRange> expert_ranges(const Model& model) {
    std::vector<ExpertRange> out;
    const auto layers =
        static_cast<std::int32_t>(model.kind == ModelKind::main ? model.hyper.n_layers : 1);
    for (std::int32_t layer = 0; layer < layers; ++layer) {
        const ExpertSize size = expert_size(model, layer);
        if (!out.empty() && out.back().size.gate_bytes == size.gate_bytes &&
            out.back().size.up_bytes == size.up_bytes &&
            out.back().size.down_bytes == size.down_bytes)
            out.back().last_layer = layer;
        else
            out.push_back({layer, layer, size});
    }
    return out;
}

}  // namespace

Result<Inspection> inspect_model(const std::string& text, const std::string& config_dir) {
    Inspection out;
    Result<Model> model = load_model(text, config_dir);
    if (model && model->path.empty()) {
        out.tensors = tensors_of_model(*model);
    } else {
        Result<GgufFile> file = read_gguf(text);
        // Where there is no header either, the first error says more: it knows what was looked for.
        if (!file) return model ? file.error() : model.error();
        out.tensors = tensors_of_file(*file, model ? &*model : nullptr);
        out.file = std::move(*file);
    }
    out.sums = sums_of(out.tensors);
    if (!model) {
        out.problem = model.error().message;
        return out;
    }
    out.experts = expert_ranges(*model);
    out.model = std::move(*model);
    return out;
}

}  // namespace plimsoll
