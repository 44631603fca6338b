#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/hyper_fields.hpp"
#include "tools/inspection.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const GgufEntry& entry) {
    Json out = {{"key", entry.key}, {"type", value_type_name(entry.type)}};
    if (const auto* array = std::get_if<GgufArray>(&entry.value)) {
        out["element_type"] = value_type_name(array->element_type);
        out["count"] = array->count;
        return out;
    }
    std::visit(
        [&](const auto& value) {
            if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, GgufArray>)
                out["value"] = value;
        },
        entry.value);
    return out;
}

Json json_of(const GgufFile& file) {
    Json metadata = Json::array();
    for (const GgufEntry& entry : file.metadata) metadata.push_back(json_of(entry));
    return {{"path", file.path},
            {"file_bytes", file.source.size_bytes},
            {"alignment_bytes", file.alignment_bytes},
            {"data_offset_bytes", file.data_offset_bytes},
            {"metadata", std::move(metadata)}};
}

Json hyperparameters_json(const Model& model) {
    const bool main = model.kind == ModelKind::main;
    Json out = Json::object();
    for (const HyperField& field : hyper_fields())
        if (main || field.in_mtp)
            std::visit(
                [&](auto member) { out[std::string(field.config_key)] = model.hyper.*member; },
                field.member);
    if (main) {
        out["swiglu_clamp"] = model.hyper.swiglu_clamp;
        out["compress_ratios"] = model.hyper.compress_ratios;
    }
    return out;
}

Json json_of(const Model& model) {
    return {{"name", model.name},
            {"kind", model.kind == ModelKind::main ? "main" : "mtp"},
            {"published", model.published},
            {"data_bytes", model.data_bytes},
            {"fingerprint", fmt::format("{:016x}", model.fingerprint)},
            {"hyperparameters", hyperparameters_json(model)},
            {"notes", model.notes}};
}

Json json_of(const TensorSum& sum) {
    return {{"class", sum.class_name},
            {"type", info_of(sum.type).name},
            {"count", sum.count},
            {"size_bytes", sum.size_bytes}};
}

Json json_of(const ExpertRange& range) {
    return {{"first_layer", range.first_layer},    {"last_layer", range.last_layer},
            {"gate_bytes", range.size.gate_bytes}, {"up_bytes", range.size.up_bytes},
            {"down_bytes", range.size.down_bytes}, {"slot_bytes", range.size.slot_bytes}};
}

Json json_of(const InspectedTensor& tensor) {
    return {{"name", tensor.name},
            {"class", tensor.class_name},
            {"type", info_of(tensor.type).name},
            {"dims", tensor.dims},
            {"size_bytes", tensor.size_bytes},
            {"file_offset_bytes", tensor.file_offset_bytes}};
}

template <class Rows>
Json list_of(const Rows& rows) {
    Json out = Json::array();
    for (const auto& row : rows) out.push_back(json_of(row));
    return out;
}

}  // namespace

std::string inspection_json(const Inspection& inspection, bool all_tensors) {
    std::uint64_t tensor_bytes = 0;
    for (const TensorSum& sum : inspection.sums) tensor_bytes += sum.size_bytes;
    Json out;
    out["file"] = inspection.file ? json_of(*inspection.file) : Json();
    out["model"] = inspection.model ? json_of(*inspection.model) : Json();
    out["tensor_count"] = inspection.tensors.size();
    out["tensor_bytes"] = tensor_bytes;
    out["classes"] = list_of(inspection.sums);
    out["experts"] = list_of(inspection.experts);
    if (all_tensors) out["tensors"] = list_of(inspection.tensors);
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
