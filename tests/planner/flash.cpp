#include "tests/planner/flash.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/units.hpp"

namespace plimsoll::test {
namespace {

Hyperparameters flash_hyper() {
    Hyperparameters hyper;
    hyper.n_layers = 43;
    hyper.hidden_size = 4096;
    hyper.vocab_size = 129'280;
    hyper.n_heads = 64;
    hyper.head_dim = 512;
    hyper.rope_dim = 64;
    hyper.q_lora_rank = 1024;
    hyper.output_lora_rank = 1024;
    hyper.n_output_groups = 8;
    hyper.sliding_window_tokens = 128;
    hyper.indexer_n_heads = 64;
    hyper.indexer_head_dim = 128;
    hyper.indexer_top_k = 512;
    hyper.n_experts = 256;
    hyper.n_experts_used = 6;
    hyper.expert_ff_dim = 2048;
    hyper.n_hash_layers = 3;
    hyper.n_streams = 4;
    hyper.context_length_tokens = 1'048'576;
    for (std::uint32_t layer = 0; layer < hyper.n_layers; ++layer)
        hyper.compress_ratios.push_back(layer < 2 ? 0 : layer % 2 == 0 ? 4 : 128);
    return hyper;
}

Model model_of(ModelKind kind, std::string name, TensorType gate_up, TensorType down,
               TensorType small) {
    Model model;
    model.kind = kind;
    model.name = std::move(name);
    model.hyper = flash_hyper();
    const StorageRecipe recipe{.rules = {{"token_embd", TensorType::f16},
                                         {"ffn_gate_exps", gate_up},
                                         {"ffn_up_exps", gate_up},
                                         {"ffn_down_exps", down},
                                         {"hc_", small},
                                         {"ffn_gate_inp", small},
                                         {"compressor", TensorType::f16},
                                         {"indexer", TensorType::f16}}};
    model.tensors = tensors_of(kind, model.hyper, recipe);
    for (const Tensor& tensor : model.tensors) model.data_bytes += tensor.size_bytes;
    finish_model(model);
    return model;
}

}  // namespace

const Model& flash_q2() {
    static const Model model = model_of(ModelKind::main, "flash-q2", TensorType::iq2_xxs,
                                        TensorType::q2_k, TensorType::f16);
    return model;
}
const Model& flash_q4() {
    static const Model model =
        model_of(ModelKind::main, "flash-q4", TensorType::q4_k, TensorType::q4_k, TensorType::f16);
    return model;
}
const Model& flash_mtp() {
    static const Model model =
        model_of(ModelKind::mtp, "flash-mtp", TensorType::q4_k, TensorType::q4_k, TensorType::f32);
    return model;
}

MachineFacts machine_of(const Card& card) {
    MachineFacts machine;
    machine.name = card.name;
    for (std::size_t index = 0; index < card.count; ++index)
        machine.devices.push_back({.name = "cuda:" + std::to_string(index),
                                   .architecture = "sm_90",
                                   .total_bytes = card.total_mib * kMiB,
                                   .overhead_bytes = (card.total_mib - card.free_mib) * kMiB,
                                   .gemm_workspace_bytes = 32 * kMiB,
                                   .memory_bandwidth_bytes_per_s = 1.8e12,
                                   .pcie_bandwidth_bytes_per_s = 5e10,
                                   .fp16_flops_per_s = 4e14});
    machine.host_available_bytes = card.host_mib * kMiB;
    machine.host_source = "case book";
    machine.nvme_read_bytes_per_s = 6e9;
    return machine;
}

Request request_with_mtp() {
    Request request = default_request();
    request.mtp_model.set("flash-mtp", Source::cli);
    return request;
}

Plan plan_or_fail(const Model& model, const Model* mtp, const MachineFacts& machine,
                  const Request& request) {
    Result<Plan> plan = make_plan(model, mtp, machine, request);
    if (!plan) {
        ADD_FAILURE() << plan.error().message;
        return {};
    }
    return std::move(*plan);
}

std::vector<std::uint64_t> rank_of_plan(const Plan& plan) {
    if (plan.refusal) return {0};
    return {1,
            class_bytes(plan, RegionClass::dense_weights),
            plan.grant.context_tokens,
            std::min<std::uint64_t>(plan.grant.chunk_tokens, 2048),
            plan.experts_on_devices(),
            plan.grant.mtp ? 1ull : 0ull,
            plan.grant.embedding_on_host ? 0ull : 1ull,
            plan.grant.chunk_tokens,
            class_bytes(plan, RegionClass::fp16_cache)};
}

std::uint64_t class_bytes(const Plan& plan, RegionClass cls) {
    std::uint64_t sum = 0;
    for (const DevicePlan& device : plan.devices) sum += device.arena.bytes_of(cls);
    return sum;
}

const Feature& feature(const Plan& plan, std::string_view name) {
    const auto at = std::find_if(plan.features.begin(), plan.features.end(),
                                 [&](const Feature& row) { return row.name == name; });
    EXPECT_NE(at, plan.features.end()) << name;
    return *at;
}

}  // namespace plimsoll::test
