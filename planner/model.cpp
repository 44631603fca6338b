#include "planner/model.hpp"

#include "planner/check.hpp"
#include "planner/fnv.hpp"
#include "planner/hyper_fields.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kRoleCount = static_cast<std::size_t>(TensorRole::count);
constexpr std::uint32_t kAbsent = ~std::uint32_t{0};

/// Rows of the index: one for tensors of no layer, then one a layer.
std::size_t index_of(TensorRole role, std::int32_t layer) {
    return static_cast<std::size_t>(layer + 1) * kRoleCount + static_cast<std::size_t>(role);
}

void add_number(Fnv1a64& digest, std::uint32_t number) { digest.add(std::uint64_t{number}); }
void add_number(Fnv1a64& digest, float number) { digest.add(number); }

void add(Fnv1a64& digest, const Hyperparameters& hyper) {
    for (const HyperField& field : hyper_fields())
        std::visit([&](auto member) { add_number(digest, hyper.*member); }, field.member);
    for (const float clamp : hyper.swiglu_clamp) digest.add(clamp);
    for (const std::uint32_t ratio : hyper.compress_ratios) digest.add(std::uint64_t{ratio});
}

std::uint64_t fingerprint_of(const Model& model) {
    Fnv1a64 digest;
    add(digest, model.hyper);
    for (const Tensor& tensor : model.tensors) {
        digest.add(tensor.name).add(std::uint64_t{static_cast<std::uint32_t>(tensor.type)});
        for (const std::uint64_t dim : tensor.dims) digest.add(dim);
    }
    return digest.value();
}

std::uint64_t expert_bytes(const Model& model, TensorRole role, std::int32_t layer) {
    const Tensor* tensor = model.find(role, layer);
    PLIMSOLL_CHECK(tensor != nullptr && tensor->dims.size() == 3, "a layer without experts");
    return tensor->size_bytes / tensor->dims[2];
}

}  // namespace

const Tensor* Model::find(TensorRole role, std::int32_t layer) const {
    PLIMSOLL_CHECK(!index.empty(), "a model is looked at before finish_model");
    const std::size_t at = index_of(role, layer);
    if (at >= index.size() || index[at] == kAbsent) return nullptr;
    return &tensors[index[at]];
}

void finish_model(Model& model) {
    const std::size_t layers = model.kind == ModelKind::main ? model.hyper.n_layers : 1;
    model.index.assign((layers + 1) * kRoleCount, kAbsent);
    for (std::size_t at = 0; at < model.tensors.size(); ++at) {
        const Tensor& tensor = model.tensors[at];
        model.index[index_of(tensor.role, tensor.layer)] = static_cast<std::uint32_t>(at);
    }
    model.fingerprint = fingerprint_of(model);
}

ExpertSize expert_size(const Model& model, std::int32_t layer) {
    ExpertSize size;
    size.gate_bytes = expert_bytes(model, TensorRole::ffn_gate_exps, layer);
    size.up_bytes = expert_bytes(model, TensorRole::ffn_up_exps, layer);
    size.down_bytes = expert_bytes(model, TensorRole::ffn_down_exps, layer);
    size.slot_bytes = align_up(size.gate_bytes, kTensorAlignmentBytes) +
                      align_up(size.up_bytes, kTensorAlignmentBytes) +
                      align_up(size.down_bytes, kTensorAlignmentBytes);
    return size;
}

}  // namespace plimsoll
