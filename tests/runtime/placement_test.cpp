#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "planner/layout.hpp"
#include "planner/units.hpp"
#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

/// Of two sets of rows [n, vocab].
double cosine_median(const std::vector<float>& a, const std::vector<float>& b, std::size_t vocab) {
    std::vector<double> cosines;
    for (std::size_t row = 0; row < a.size(); row += vocab) {
        double dot = 0, aa = 0, bb = 0;
        for (std::size_t i = row; i < row + vocab; ++i) {
            const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
            dot += x * y;
            aa += x * x;
            bb += y * y;
        }
        cosines.push_back(dot / std::sqrt(aa * bb));
    }
    std::sort(cosines.begin(), cosines.end());
    return cosines[cosines.size() / 2];
}

/// A model, a prompt, and the logits with everything on the device.
class PlacementTest : public testing::Test {
protected:
    const GoldenCase golden_ = read_golden_case("tiny-q2");
    const CaseModels& models_ = models_of_case("tiny-q2");
    const std::span<const TokenId> prompt_ = std::span(golden_.tokens).first(150);
    RunSetting all_ = {.chunk_tokens = 64, .mtp = true};

    /// Everything on the device.
    [[nodiscard]] Plan full_plan() const { return plan_of_case(models_, all_); }

    [[nodiscard]] std::uint64_t expert_bytes() const {
        return full_plan().devices[0].arena.bytes_of(RegionClass::expert_weights);
    }

    /// A host tier beside the device, and a change that makes use of it.
    [[nodiscard]] RunSetting with_host(std::function<void(Request&)> change) const {
        RunSetting setting = all_;
        setting.host_bytes = 64 * kMiB;
        setting.change = std::move(change);
        return setting;
    }

    void expect_same_logits(const Plan& plan) const {
        PlannedEngine full(models_, full_plan());
        PlannedEngine other(models_, plan);
        EXPECT_EQ(feed(other, prompt_), feed(full, prompt_));
        EXPECT_EQ(feed(other, prompt_, 7), feed(full, prompt_, 64));
    }
};

TEST_F(PlacementTest, ExpertsOnTheHostChangeNoBitWhateverTheBudget) {
    for (const std::uint64_t percent : {95u, 75u, 50u, 25u}) {
        SCOPED_TRACE(percent);
        const std::uint64_t cap_bytes = expert_bytes() * percent / 100;
        const Plan plan =
            plan_of_case(models_, with_host([&](Request& request) {
                             request.experts_device_max_bytes.set(cap_bytes, Source::cli);
                         }));
        ASSERT_EQ(plan.experts_on_devices() + plan.host.experts, plan.experts_total);
        ASSERT_GT(plan.host.experts, 0u);
        expect_same_logits(plan);
    }
}

TEST_F(PlacementTest, ExpertsAtTheFloorComeInWavesAndChangeNoBit) {
    const Plan plan = plan_of_case(models_, with_host([](Request& request) {
                                       request.experts.set(Placement::host, Source::cli);
                                       request.experts_wish.value = Wish::require;
                                   }));
    EXPECT_EQ(plan.host.experts, plan.experts_total);
    const Hyperparameters& hyper = models_.main.hyper;
    std::uint64_t slots = 0;
    for (const Region& region : plan.devices[0].arena.regions)
        if (region.kind == RegionKind::expert_pool) slots += region.slot_count;
    EXPECT_EQ(slots, expert_floor_slots(hyper, plan.grant.drafts));
    ASSERT_LT(slots, hyper.n_experts * hyper.n_layers);
    expect_same_logits(plan);

    PlannedEngine planned(models_, plan);
    (void)feed(planned, prompt_);
    const ExpertCounts& counts = planned.engine.expert_counts();
    EXPECT_EQ(counts.hits + counts.misses, prompt_.size() * hyper.n_layers * hyper.n_experts_used);
    EXPECT_GT(counts.misses, 0u);
    EXPECT_EQ(counts.copied_bytes, counts.misses * expert_size(models_.main, 0).slot_bytes);
}

TEST_F(PlacementTest, AByteLessThanTheFloorIsRefused) {
    const std::uint64_t floor_bytes =
        expert_floor_slots(models_.main.hyper, 1) * expert_size(models_.main, 0).slot_bytes;
    for (const std::uint64_t missing_bytes : {0u, 1u}) {
        const RunSetting setting = with_host([&](Request& request) {
            request.experts_device_max_bytes.set(floor_bytes - missing_bytes, Source::cli);
        });
        if (missing_bytes == 0)
            expect_same_logits(plan_of_case(models_, setting));
        else
            EXPECT_THROW((void)plan_of_case(models_, setting), std::runtime_error);
    }
}

TEST_F(PlacementTest, ExpertsThatStayAreNeverCopied) {
    PlannedEngine planned(models_, full_plan());
    (void)feed(planned, prompt_);
    const ExpertCounts& counts = planned.engine.expert_counts();
    EXPECT_EQ(counts.misses, 0u);
    EXPECT_EQ(counts.hits,
              prompt_.size() * models_.main.hyper.n_layers * models_.main.hyper.n_experts_used);
}

TEST_F(PlacementTest, TheEmbeddingOnTheHostChangesNoBit) {
    const Plan plan = plan_of_case(models_, with_host([](Request& request) {
                                       request.embedding.set(Placement::host, Source::cli);
                                       request.embedding_wish.value = Wish::require;
                                   }));
    ASSERT_TRUE(plan.grant.embedding_on_host);
    expect_same_logits(plan);
}

/// The smallest device there is a plan for, to a page: all that can be streamed is.
Plan smallest_plan(const CaseModels& models, RunSetting setting) {
    std::uint64_t low = 0, high = setting.device_bytes;
    while (high - low > 4096) {
        setting.device_bytes = low + (high - low) / 2;
        try {
            (void)plan_of_case(models, setting);
            high = setting.device_bytes;
        } catch (const std::runtime_error&) {
            low = setting.device_bytes;
        }
    }
    setting.device_bytes = high;
    return plan_of_case(models, setting);
}

TEST_F(PlacementTest, StreamedLayersAndAHeadInSeveralTilesChangeNoBit) {
    const CaseModels& models =
        models_of_case("tiny-q2", {.vocab_size = 140'000});  // a head of 36 MiB
    const RunSetting all = {.chunk_tokens = 16, .mtp = true};
    RunSetting setting = all;
    setting.host_bytes = 256 * kMiB;
    const Plan plan = smallest_plan(models, setting);
    ASSERT_TRUE(plan.grant.head_streamed);
    ASSERT_LT(head_tile_rows(models.main), 140'000u);
    ASSERT_GT(plan.grant.dense_streamed_layers, 0u);
    ASSERT_TRUE(plan.grant.embedding_on_host);
    PlannedEngine full(models, plan_of_case(models, all));
    PlannedEngine other(models, plan);
    const std::span<const TokenId> prompt = prompt_.first(20);
    EXPECT_EQ(feed(other, prompt), feed(full, prompt));
}

TEST_F(PlacementTest, LayersOfDifferentStorageTakeTurnsInPoolsOfTheirOwn) {
    // Within a phase one layer takes what another does not: float32 rows, quantised ones of either
    // kind, expert slots of another size.
    const CaseModels& models =
        models_of_case("tiny-q2", {.storage = {{"blk.2.ffn_gate_exps", "Q4_K"},
                                               {"blk.2.ffn_up_exps", "Q4_K"},
                                               {"blk.2.ffn_down_exps", "Q4_K"},
                                               {"blk.5.ffn_down_exps", "Q8_0"},
                                               {"blk.4.attn_output_a", "F16"},
                                               {"blk.0.attn_output_a", "F32"},
                                               {"blk.2.attn_q_a", "Q4_K"},
                                               {"blk.4.attn_kv", "BF16"},
                                               {"blk.1.ffn_down_shexp", "Q4_K"},
                                               {"output.weight", "Q4_K"}}});
    PlannedEngine full(models, plan_of_case(models, all_));
    RunSetting setting = with_host([](Request& request) {
        request.experts.set(Placement::host, Source::cli);
        request.experts_wish.value = Wish::require;
    });
    PlannedEngine other(models, plan_of_case(models, setting));
    const auto& regions = other.plan->devices[0].arena.regions;
    EXPECT_EQ(
        std::count_if(regions.begin(), regions.end(),
                      [](const Region& region) { return region.kind == RegionKind::expert_pool; }),
        3);
    const Logits logits = feed(full, prompt_);
    EXPECT_EQ(feed(other, prompt_), logits);
    EXPECT_EQ(feed(other, prompt_, 7), logits);

    RunSetting precise = all_;
    precise.precise = true;
    precise.kv_format = KvFormat::f32;
    PlannedEngine exact(models, plan_of_case(models, precise));
    EXPECT_GT(cosine_median(logits.main, feed(exact, prompt_).main, golden_.vocab_size), 0.9993);
}

TEST_F(PlacementTest, SessionsPlannedBesideChangeNoBit) {
    RunSetting setting = all_;
    setting.change = [](Request& request) { request.sessions.value = 3; };
    expect_same_logits(plan_of_case(models_, setting));
}

TEST_F(PlacementTest, DraftsPlannedOrNotChangeNoBitOfTheModelsOwnLogits) {
    RunSetting without = all_;
    without.mtp = false;
    PlannedEngine full(models_, full_plan());
    PlannedEngine other(models_, plan_of_case(models_, without));
    EXPECT_EQ(feed(other, prompt_).main, feed(full, prompt_).main);
}

TEST_F(PlacementTest, AConversationBegunAnewForgetsTheOneBefore) {
    PlannedEngine planned(models_, full_plan());
    const Logits first = feed(planned, prompt_);
    (void)feed(planned, std::span(golden_.tokens).last(100));
    EXPECT_EQ(feed(planned, prompt_), first);
}

TEST_F(PlacementTest, DecodingGivesTheLogitsThatFeedingTheSameTokensGives) {
    PlannedEngine planned(models_, full_plan());
    const std::vector<TokenId> reply = generate(planned, prompt_, 20);
    std::vector<TokenId> all(prompt_.begin(), prompt_.end());
    all.insert(all.end(), reply.begin(), reply.end());
    const Logits logits = feed(planned, all);
    const std::uint32_t vocab = golden_.vocab_size;
    for (std::size_t index = 0; index < reply.size(); ++index) {
        const auto row =
            std::span(logits.main).subspan((prompt_.size() - 1 + index) * vocab, vocab);
        EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), reply[index]);
    }
}

}  // namespace
}  // namespace plimsoll::test
