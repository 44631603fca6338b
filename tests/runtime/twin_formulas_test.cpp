// The planner sizes buffers and regions by formulas of its own, since neither it nor the kernels
// may include the other. These tests hold the two together.

#include <gtest/gtest.h>

#include "kernels/ops.hpp"
#include "planner/layout.hpp"
#include "planner/schedule.hpp"
#include "tests/runtime/engine_runs.hpp"

namespace plimsoll {
namespace {

constexpr std::uint32_t kTokenCounts[] = {1, 2, 3, 16, 37, 63, 64, 65, 256, 2048, 4096};

kernels::WeightType kernel_type(TensorType type) { return static_cast<kernels::WeightType>(type); }

TEST(TwinFormulas, WeightTypesHaveTheSameIdsAndBlocks) {
    for (const kernels::WeightTypeInfo& info : kernels::kWeightTypes) {
        const TensorTypeInfo* twin = find_tensor_type(static_cast<std::uint32_t>(info.type));
        ASSERT_NE(twin, nullptr);
        EXPECT_EQ(twin->block_elements, info.block_elements);
        EXPECT_EQ(twin->block_bytes, info.block_bytes);
        EXPECT_EQ(storage_bytes(twin->type, 4096), kernels::weight_row_bytes(info.type, 4096));
    }
    EXPECT_EQ(std::size(kTensorTypes), std::size(kernels::kWeightTypes) + 1);  // and I32
}

TEST(TwinFormulas, QuantisedRowsHaveTheSameBytes) {
    for (const TensorTypeInfo& info : kTensorTypes) {
        if (info.type == TensorType::i32) continue;
        const kernels::ActivationFormat format =
            kernels::activation_format(kernel_type(info.type), kernels::ActivationMode::fast);
        for (const std::uint64_t n : {256u, 512u, 1024u, 4096u, 32768u})
            EXPECT_EQ(quantized_row_bytes(info.type, n),
                      format == kernels::ActivationFormat::f32
                          ? 0
                          : kernels::activation_row_bytes(format, n))
                << info.name << " " << n;
    }
}

TEST(TwinFormulas, ExpertScratchHasTheSameBytes) {
    for (const TensorTypeInfo& info : kTensorTypes) {
        if (info.type == TensorType::i32) continue;
        for (const bool fast : {false, true})
            for (const std::uint32_t ff_dim : {256u, 768u, 2048u, 3072u})
                for (const std::uint32_t n : kTokenCounts)
                    EXPECT_EQ(expert_mid_bytes(n, ff_dim, info.type, fast),
                              kernels::expert_ffn_workspace_bytes(
                                  n, ff_dim, kernel_type(info.type),
                                  fast ? kernels::ActivationMode::fast
                                       : kernels::ActivationMode::precise));
    }
}

TEST(TwinFormulas, IndexerScratchHasTheSameBytes) {
    for (const std::uint32_t top_k : {16u, 512u, 1024u})
        for (const std::uint32_t n : kTokenCounts)
            EXPECT_EQ(indexer_scores_bytes(n, top_k),
                      kernels::indexer_select_workspace_bytes(n, top_k));
}

TEST(TwinFormulas, CacheRegionsHaveTheSameBytes) {
    constexpr std::pair<KvFormat, kernels::KvFormat> kFormats[] = {
        {KvFormat::packed, kernels::KvFormat::packed}, {KvFormat::f32, kernels::KvFormat::f32}};
    for (const auto& [format, twin] : kFormats)
        for (const std::uint32_t rows : {1u, 2u, 31u, 128u, 129u, 1026u, 262146u}) {
            for (const auto& [head_dim, rope_dim] :
                 {std::pair(80u, 16u), std::pair(512u, 64u), std::pair(192u, 64u)})
                EXPECT_EQ(kv_rows_bytes(format, rows, head_dim, rope_dim),
                          kernels::kv_rows_bytes(twin, rows, head_dim, rope_dim));
            for (const std::uint32_t dim : {32u, 64u, 128u})
                EXPECT_EQ(indexer_rows_bytes(format, rows, dim),
                          kernels::indexer_rows_bytes(twin, rows, dim));
        }
    for (const std::uint32_t ratio : {4u, 128u})
        for (const std::uint32_t dim : {32u, 80u, 128u, 512u})
            EXPECT_EQ(
                compressor_state_bytes(ratio, dim),
                kernels::compressor_state_bytes(ratio, kernels::compressor_lanes(ratio) * dim));
}

/// Bytes of a role in a phase of the schedule; 0 where there is none.
std::uint64_t buffer_bytes(const Schedule& schedule, PhaseKind phase, BufferRole role) {
    const std::int32_t at = schedule.phase(phase).buffer[static_cast<std::size_t>(role)];
    return at < 0 ? 0 : schedule.buffers[static_cast<std::size_t>(at)].size_bytes;
}

TEST(TwinFormulas, BuffersOfTheScheduleHoldWhatTheKernelsTake) {
    using R = BufferRole;
    const test::CaseModels& models = test::models_of_case("tiny-q2");
    const Hyperparameters& h = models.main.hyper;
    for (const std::uint32_t n : kTokenCounts) {
        const Schedule schedule = build_schedule(
            models.main, &models.mtp, {.tokens = n, .logits_rows = 2, .layer_last = h.n_layers});
        const auto bytes = [&](PhaseKind phase, R role) {
            return buffer_bytes(schedule, phase, role);
        };
        EXPECT_EQ(bytes(PhaseKind::mtp_input, R::mtp_norms),
                  kernels::mtp_input_workspace_bytes(n, h.n_streams, h.hidden_size));
        EXPECT_EQ(bytes(PhaseKind::csa_layer, R::indexer_scores),
                  kernels::indexer_select_workspace_bytes(n, h.indexer_top_k));
        const Tensor& down = *models.main.find(TensorRole::ffn_down_exps, 0);
        EXPECT_EQ(bytes(PhaseKind::window_layer, R::expert_mid),
                  kernels::expert_ffn_workspace_bytes(n * h.n_experts_used, h.expert_ff_dim,
                                                      kernel_type(down.type),
                                                      kernels::ActivationMode::fast));
        const Tensor& shared = *models.main.find(TensorRole::ffn_down_shexp, 0);
        EXPECT_EQ(bytes(PhaseKind::hca_layer, R::shared_mid),
                  kernels::expert_ffn_workspace_bytes(n, h.expert_ff_dim, kernel_type(shared.type),
                                                      kernels::ActivationMode::fast));
        EXPECT_EQ(bytes(PhaseKind::csa_layer, R::attn_in_q16),
                  n * kernels::activation_q16_bytes(h.hidden_size));
        EXPECT_EQ(bytes(PhaseKind::csa_layer, R::ffn_in_q16k),
                  n * kernels::activation_q16k_bytes(h.hidden_size));
    }
}

}  // namespace
}  // namespace plimsoll
