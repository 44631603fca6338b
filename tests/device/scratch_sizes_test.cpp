#include <gtest/gtest.h>

#include "kernels/cuda/decode.hpp"
#include "kernels/cuda/ops.hpp"
#include "planner/schedule.hpp"

namespace plimsoll::test {
namespace {

namespace c = kernels::cuda;

TEST(GpuScratchSizes, AreTheSameToThePlannerAndTheKernels) {
    EXPECT_EQ(gpu::kStepStateBytes, sizeof(c::StepState));
    for (const std::uint32_t n : {1u, 2u, 3u, 6u, 63u, 64u, 65u, 255u, 256u, 2'048u, 24'576u}) {
        for (const std::uint32_t n_experts : {1u, 4u, 256u})
            EXPECT_EQ(gpu::expert_tiles_bytes(n, n_experts),
                      (1 + 2 * c::expert_tiles_max(n, n_experts)) * sizeof(std::int32_t));
        for (const bool is_shared : {false, true})
            for (const bool precise : {false, true})
                EXPECT_EQ(gpu::expert_mid_bytes(n, 4'096, 2'048, is_shared, precise),
                          c::expert_ffn_workspace_bytes(
                              n, 4'096, 2'048, is_shared,
                              precise ? c::Arithmetic::precise : c::Arithmetic::fast));
        for (const std::uint32_t rows : {1u, 34u, 1'026u, 32'770u, 262'146u})
            EXPECT_EQ(gpu::indexer_scores_bytes(n, rows),
                      c::indexer_select_workspace_bytes(n, rows));
    }
    for (const std::uint32_t rows : {128u, 160u, 640u, 1'154u, 8'322u})
        for (const std::uint32_t n_heads : {1u, 4u, 64u, 128u})
            EXPECT_EQ(gpu::attn_partials_bytes(n_heads, 512, rows),
                      c::decode_attention_partials_bytes(n_heads, 512, rows));
    for (const std::uint32_t n_streams : {1u, 2u, 4u, 8u})
        EXPECT_EQ(gpu::hc_sums_bytes(n_streams), c::decode_hc_sums_bytes(n_streams));
}

}  // namespace
}  // namespace plimsoll::test
