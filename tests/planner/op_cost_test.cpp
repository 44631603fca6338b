#include "planner/op_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/cost.hpp"
#include "planner/units.hpp"
#include "tests/planner/flash.hpp"

namespace plimsoll::test {
namespace {

constexpr std::uint64_t kChunkTokens = 4'096;

Schedule flash_schedule(bool is_gpu) {
    return build_schedule(flash_q2(), nullptr,
                          {.is_gpu = is_gpu,
                           .context_tokens = 131'072,
                           .tokens = kChunkTokens,
                           .layer_last = flash_q2().hyper.n_layers});
}

PricedStep step_of(const Schedule& schedule, std::uint64_t tokens, std::uint64_t position) {
    return {.schedule = schedule,
            .model = flash_q2(),
            .planned_tokens = kChunkTokens,
            .tokens = tokens,
            .position = position};
}

OpCost sum_of(const PricedStep& step) {
    OpCost sum = embed_cost(step);
    for (std::uint32_t layer = 0; layer < flash_q2().hyper.n_layers; ++layer)
        sum += layer_cost(step, static_cast<std::int32_t>(layer));
    return sum += head_cost(step);
}

/// The kinds of a layer's stretch, and of both ends.
struct PlacedOp {
    OpKind kind;
    std::int32_t layer;
};
std::vector<PlacedOp> ops_of(const Schedule& schedule) {
    using P = PhaseKind;
    const struct {
        P phase;
        std::int32_t layer;  // one of its kind
    } places[] = {{P::embed, kNoLayer},        {P::window_layer, 0},
                  {P::csa_layer, 2},           {P::hca_layer, 3},
                  {P::head, kNoLayer},         {P::decode_embed, kNoLayer},
                  {P::decode_window_layer, 0}, {P::decode_csa_layer, 2},
                  {P::decode_hca_layer, 3},    {P::decode_head, kNoLayer}};
    std::vector<PlacedOp> ops;
    for (const auto& place : places) {
        const Phase& phase = schedule.phase(place.phase);
        for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
            ops.push_back({schedule.ops[op].kind, place.layer});
    }
    return ops;
}

TEST(OpCost, OfADecodedTokenOfFlashIsWhatTheMeasuredBoundIsMadeFrom) {
    for (const bool is_gpu : {false, true}) {
        const Schedule schedule = flash_schedule(is_gpu);
        const OpCost sum = sum_of(step_of(schedule, 1, 2'048));
        EXPECT_NEAR(sum.bytes, 9.2e9, 0.1e9) << "GPU " << is_gpu;
        EXPECT_NEAR(sum.flops, 30e9, 5e9) << "GPU " << is_gpu;
    }
}

TEST(OpCost, PricesEveryOpOfTheSchedule) {
    for (const bool is_gpu : {false, true}) {
        const Schedule schedule = flash_schedule(is_gpu);
        for (const PlacedOp& op : ops_of(schedule)) {
            const bool is_decode = op.kind >= OpKind::decode_embed;
            const PricedStep step = step_of(schedule, is_decode ? 1 : 64, 8'192);
            EXPECT_GT(op_cost(step, op.kind, op.layer).bytes, 0)
                << op_kind_name(op.kind) << " of layer " << op.layer;
        }
    }
}

TEST(OpCost, ReadsEveryWeightOnceAndOfTheTablesARowAToken) {
    const Model& model = flash_q2();
    double whole_bytes = 0, expert_bytes = 0;
    for (const Tensor& tensor : model.tensors) {
        const bool is_routed = tensor.name.find("_exps") != std::string::npos;
        const bool is_table =
            tensor.role == TensorRole::token_embd || tensor.role == TensorRole::ffn_gate_tid2eid;
        const double size = static_cast<double>(tensor.size_bytes);
        if (is_routed)
            expert_bytes += size;
        else
            whole_bytes += is_table ? size / static_cast<double>(tensor.dims[1]) : size;
    }
    for (const bool is_gpu : {false, true}) {
        const Schedule schedule = flash_schedule(is_gpu);
        const OpCost sum = sum_of(step_of(schedule, 1, 8'192));
        EXPECT_NEAR(sum.dense_bytes / whole_bytes, 1, 1e-9) << "GPU " << is_gpu;
        EXPECT_NEAR(sum.expert_bytes / expert_bytes, 6.0 / 256, 1e-9) << "GPU " << is_gpu;
    }
}

TEST(OpCost, NeverFallsWithMoreTokensOrContext) {
    const Schedule schedule = flash_schedule(true);
    for (const PlacedOp& op : ops_of(schedule)) {
        if (op.kind >= OpKind::decode_embed) continue;
        SCOPED_TRACE(op_kind_name(op.kind));
        OpCost few;
        for (std::uint64_t tokens = 1; tokens <= kChunkTokens; tokens *= 2) {
            const OpCost more = op_cost(step_of(schedule, tokens, 2'048), op.kind, op.layer);
            EXPECT_GE(more.bytes, few.bytes) << tokens << " tokens";
            EXPECT_GE(more.flops, few.flops) << tokens << " tokens";
            few = more;
        }
        EXPECT_GE(op_cost(step_of(schedule, kChunkTokens, 65'536), op.kind, op.layer).bytes,
                  few.bytes);
    }
}

TEST(OpCost, IsZeroForWhatTheStepDoesNotRun) {
    const Schedule schedule = flash_schedule(true);
    const PricedStep step = step_of(schedule, 1, 8'192);
    EXPECT_EQ(op_cost(step, OpKind::indexer_query, 0).bytes, 0) << "a layer without an indexer";
    EXPECT_EQ(op_cost(step, OpKind::head, 0).bytes, 0) << "no op of a layer";
    EXPECT_EQ(op_cost(step, OpKind::quantize_attn_in, 0).bytes, 0) << "an op of the CPU";
}

TEST(OpCost, ReadsTheIndexersQueryWeightsWhereThereIsAChoiceAlone) {
    const Schedule schedule = flash_schedule(true);
    const double early =
        op_cost(step_of(schedule, 1, 2'040), OpKind::decode_q_products, 2).dense_bytes;
    const double late =
        op_cost(step_of(schedule, 1, 2'060), OpKind::decode_q_products, 2).dense_bytes;
    const Model& model = flash_q2();
    EXPECT_EQ(late - early,
              static_cast<double>(model.find(TensorRole::indexer_attn_q_b, 2)->size_bytes +
                                  model.find(TensorRole::indexer_proj, 2)->size_bytes));
}

TEST(OpCost, CountsCachedRowsAsTheirRegionsHoldThem) {
    const Grant grant{.context_tokens = 131'072};
    const std::uint64_t bytes = cache_bytes_in_use(flash_q2(), grant, 131'072);
    const Plan plan = plan_or_fail(flash_q2(), nullptr, machine_of(kP141), default_request());
    const std::uint64_t planned = class_bytes(plan, RegionClass::kv);
    EXPECT_LE(bytes, planned);
    EXPECT_NEAR(static_cast<double>(bytes) / static_cast<double>(planned), 1, 0.01);
    EXPECT_GT(cache_bytes_in_use(flash_q2(), grant, 4'096),
              cache_bytes_in_use(flash_q2(), grant, 2'048));
}

TEST(StepCost, IsTheSumOfItsOps) {
    const MachineFacts machine = machine_of(kP141);
    const Footprint footprint(flash_q2(), nullptr, machine);
    const Division division{
        .grant = {.context_tokens = 131'072, .chunk_tokens = kChunkTokens},
        .devices = {{.layer_last = flash_q2().hyper.n_layers, .experts = 11'008}}};
    const Schedule& schedule = footprint.packed_schedule(division, 0).schedule;
    const OpCost token = sum_of(step_of(schedule, 1, 2'048));
    const StepCost decode = decode_cost(footprint, division, 2'048);
    EXPECT_DOUBLE_EQ(decode.memory_bytes, token.bytes);
    EXPECT_DOUBLE_EQ(decode.flops, token.flops);
    EXPECT_EQ(decode.link_bytes, 0);
    EXPECT_EQ(decode.nvme_bytes, 0);
    const OpCost chunk = sum_of(step_of(schedule, kChunkTokens, 2'048));
    const StepCost prefill = prefill_cost(footprint, division, 2'048, kChunkTokens);
    EXPECT_NEAR(prefill.memory_bytes / chunk.bytes, 1, 1e-12);
    EXPECT_NEAR(prefill.flops / chunk.flops, 1, 1e-12);
}

TEST(StepCost, FollowsTheSharesThatADeviceFileHas) {
    MachineFacts machine = machine_of(kP141);
    const Division division{
        .grant = {.context_tokens = 131'072, .chunk_tokens = kChunkTokens},
        .devices = {{.layer_last = flash_q2().hyper.n_layers, .experts = 11'008}}};
    machine.devices[0].decode_bandwidth_share = 0.5;
    machine.devices[0].prefill_compute_share = 0.2;
    const Footprint footprint(flash_q2(), nullptr, machine);
    const Prediction predicted = predict(footprint, division);
    const StepCost decode = decode_cost(footprint, division, kDecodePosition);
    EXPECT_NEAR(predicted.decode_tokens_per_s,
                machine.devices[0].memory_bandwidth_bytes_per_s * 0.5 / decode.memory_bytes, 1e-6);
    const StepCost prefill =
        prefill_cost(footprint, division, kDecodePosition - kChunkTokens / 2, kChunkTokens);
    EXPECT_NEAR(predicted.prefill_tokens_per_s,
                machine.devices[0].fp16_flops_per_s * 0.2 * kChunkTokens / prefill.flops, 1e-6);
}

TEST(StepCost, OfASavedPlanIsWhatItWasPredictedBy) {
    const Plan plan = plan_or_fail(flash_q2(), &flash_mtp(), machine_of(kP141), request_with_mtp());
    const std::uint64_t chunk = plan.grant.chunk_tokens;
    const StepPair steps[] = {{kDecodePosition, chunk}, {kDecodePosition + chunk / 2, chunk}};
    const auto costs = costs_of_plan(plan, flash_q2(), &flash_mtp(), steps);
    ASSERT_TRUE(costs.ok()) << costs.error().message;
    EXPECT_DOUBLE_EQ(1 / (*costs)[0].decode.seconds, plan.predicted.decode_tokens_per_s);
    EXPECT_DOUBLE_EQ(static_cast<double>(chunk) / (*costs)[1].prefill.seconds,
                     plan.predicted.prefill_tokens_per_s);
}

}  // namespace
}  // namespace plimsoll::test
