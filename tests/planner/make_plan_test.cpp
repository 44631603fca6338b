#include <gtest/gtest.h>

#include <random>

#include "planner/footprint.hpp"
#include "planner/units.hpp"
#include "tests/planner/flash.hpp"

namespace plimsoll::test {
namespace {

Request with_context(std::uint64_t tokens) {
    Request request = request_with_mtp();
    request.context.set({.target = tokens, .minimum = kContextTokensMin}, Source::yaml);
    return request;
}

void require(Request& request, std::string_view text) {
    const Status status = apply_require(request, text);
    ASSERT_TRUE(status.ok()) << status.error().message;
}

Plan plan_on(const Card& card, const Request& request) {
    return plan_or_fail(flash_q2(), &flash_mtp(), machine_of(card), request);
}

TEST(Plan96, FitsEverythingAndReducesOnlyTheFp16Cache) {
    for (const std::uint64_t context : {32'768u, 131'072u}) {
        const Plan plan = plan_on(kP96, with_context(context));
        ASSERT_FALSE(plan.refusal);
        EXPECT_EQ(plan.verdict, Verdict::full);
        EXPECT_EQ(plan.grant.context_tokens, context);
        EXPECT_EQ(plan.grant.chunk_tokens, kChunkTokensDefault);
        EXPECT_TRUE(plan.grant.mtp);
        EXPECT_FALSE(plan.grant.embedding_on_host);
        EXPECT_EQ(plan.experts_on_devices(), 11'008u);
        const std::uint64_t fp16 = class_bytes(plan, RegionClass::fp16_cache);
        EXPECT_GE(fp16, 7 * kGiB);
        EXPECT_LT(fp16, 11'362'369'536u);
        EXPECT_NE(feature(plan, "fp16_cache").reason.find("of 10.58 GiB"), std::string::npos)
            << feature(plan, "fp16_cache").reason;
        EXPECT_LE(plan.devices[0].arena.planned_bytes, plan.devices[0].budget_bytes);
    }
}

TEST(Plan96, WeightsAreTheFilesBytesPlusLittlePadding) {
    const Plan plan = plan_on(kP96, with_context(131'072));
    const std::uint64_t weights = class_bytes(plan, RegionClass::dense_weights) +
                                  class_bytes(plan, RegionClass::expert_weights) +
                                  class_bytes(plan, RegionClass::embedding);
    EXPECT_GE(weights, flash_q2().data_bytes);
    EXPECT_LE(weights - flash_q2().data_bytes, 8 * kMiB);
    EXPECT_NEAR(static_cast<double>(weights) / kMiB, 82'698, 8);
}

TEST(Plan96, HoldsAMillionTokensWithTheDraftHead) {
    const Plan plan = plan_on(kP96, with_context(1'048'576));
    ASSERT_FALSE(plan.refusal);
    EXPECT_EQ(plan.grant.context_tokens, 1'048'576u);
    EXPECT_TRUE(plan.grant.mtp);
    EXPECT_EQ(plan.experts_on_devices(), 11'008u);
}

TEST(Plan96, RefusesAFullFp16CacheBesideEverythingElse) {
    Request request = request_with_mtp();
    for (const char* text : {"context=131072", "fp16_cache", "mtp", "prefill_chunk=2048",
                             "embedding=device", "experts"})
        require(request, text);
    const Plan plan = plan_on(kP96, request);
    ASSERT_TRUE(plan.refusal);
    EXPECT_EQ(plan.verdict, Verdict::no_fit);
    EXPECT_EQ(plan.refusal->pool, "cuda:0");
    const std::uint64_t without_reserve = plan.refusal->short_bytes - 256 * kMiB;
    EXPECT_GE(without_reserve, 1.1 * kGiB);
    EXPECT_LE(without_reserve, 2.0 * kGiB);
    for (const char* name :
         {"fp16 cache", "mtp", "context 131,072", "prefill chunk 2,048", "embedding", "experts"})
        EXPECT_NE(plan.refusal->reason.find(name), std::string::npos)
            << name << " in " << plan.refusal->reason;
    ASSERT_FALSE(plan.refusal->suggestions.empty());
    EXPECT_EQ(plan.refusal->suggestions[0].verdict, Verdict::full)
        << "letting the cache shrink cures it";
}

TEST(Plan96, ReducesTheOneFeatureThatIsMerelyPreferred) {
    Request request = request_with_mtp();
    for (const char* text :
         {"context=131072", "mtp", "prefill_chunk=2048", "embedding=device", "experts"})
        require(request, text);
    const Plan plan = plan_on(kP96, request);
    ASSERT_FALSE(plan.refusal);
    EXPECT_LT(class_bytes(plan, RegionClass::fp16_cache), 11'362'369'536u);
    EXPECT_EQ(plan.grant.chunk_tokens, 2'048u);
}

TEST(Plan141, HoldsEverythingInFullAtAMillionTokens) {
    const Plan plan = plan_on(kP141, with_context(1'048'576));
    EXPECT_EQ(plan.verdict, Verdict::full);
    EXPECT_EQ(class_bytes(plan, RegionClass::fp16_cache), 11'362'369'536u);
}

TEST(Plan141, SpillsTheQ4ModelsExperts) {
    const Plan plan = plan_or_fail(flash_q4(), nullptr, machine_of(kP141), default_request());
    EXPECT_EQ(plan.verdict, Verdict::spilled);
    const std::uint64_t slot = expert_size(flash_q4(), 0).slot_bytes;
    EXPECT_GE((plan.experts_total - plan.experts_on_devices()) * slot, 13.2 * kGiB);
}

TEST(Plan24, KeepsDenseWeightsAndSpillsTheRestToTheHost) {
    const Plan plan = plan_on(kP24, with_context(131'072));
    EXPECT_EQ(plan.verdict, Verdict::spilled);
    const std::uint64_t experts = class_bytes(plan, RegionClass::expert_weights);
    EXPECT_GE(experts, 13.5 * kGiB);
    EXPECT_LE(experts, 15.0 * kGiB);
    EXPECT_EQ(plan.nvme.experts, 0u);
    EXPECT_EQ(plan.host.experts + plan.experts_on_devices(), plan.experts_total);
}

TEST(Plan12, SpillsToTheHostAndThenToTheFile) {
    const Plan plan = plan_on(kP12, with_context(131'072));
    const std::uint64_t experts = class_bytes(plan, RegionClass::expert_weights);
    EXPECT_GE(experts, 2 * kGiB);
    EXPECT_LE(experts, 3 * kGiB);
    EXPECT_GT(plan.host.experts, 0u);
    EXPECT_GT(plan.nvme.experts, 0u);
    EXPECT_EQ(plan.host.experts + plan.experts_on_devices() + plan.nvme.experts,
              plan.experts_total);
}

TEST(Plan5090x2, UsesBothCardsAndSpillsWhatIsOver) {
    const Plan plan = plan_on(kP5090x2, with_context(131'072));
    ASSERT_EQ(plan.devices.size(), 2u);
    EXPECT_EQ(plan.devices[0].layer_last, plan.devices[1].layer_first);
    EXPECT_EQ(plan.devices[1].layer_last, 43u);
    const std::uint64_t slot = expert_size(flash_q2(), 0).slot_bytes;
    EXPECT_GE((plan.experts_total - plan.experts_on_devices()) * slot, 17.5 * kGiB);
    EXPECT_NE(plan.devices[1].arena.find(RegionKind::staging_peer), nullptr);
}

TEST(PlanWorkspace, StaysUnder800MiBAtChunk2048AndDoublesAt4096) {
    Request request = with_context(131'072);
    require(request, "prefill_chunk=2048");
    const std::uint64_t at_2048 = class_bytes(plan_on(kP96, request), RegionClass::workspace);
    EXPECT_LT(at_2048, 800 * kMiB);
    const std::uint64_t at_4096 =
        class_bytes(plan_on(kP96, with_context(131'072)), RegionClass::workspace);
    EXPECT_NEAR(static_cast<double>(at_4096), 2.0 * static_cast<double>(at_2048),
                0.01 * static_cast<double>(at_4096));
}

TEST(PlanWorkspace, PacksWithinOnePercentOfTheBoundForEveryChunkAndModel) {
    for (const Model* model : {&flash_q2(), &flash_q4()})
        for (const Model* mtp : {static_cast<const Model*>(nullptr), &flash_mtp()})
            for (const bool quantized : {false, true})
                for (std::uint64_t tokens = 1; tokens <= 8'192; tokens *= 2) {
                    const Schedule schedule = build_schedule(*model, mtp,
                                                             {.tokens = tokens,
                                                              .logits_rows = 2,
                                                              .quantized_activations = quantized,
                                                              .layer_last = model->hyper.n_layers});
                    const Packing packing = pack(schedule.buffers);
                    EXPECT_LE(packing.packed_bytes, packing.lower_bound_bytes * 101 / 100)
                        << tokens;
                    EXPECT_EQ(validate_packing(schedule.buffers, packing), std::nullopt);
                }
}

TEST(PlanSweep, MoreMemoryIsNeverWorseAndRefusalsFallByWhatIsAdded) {
    std::vector<std::uint64_t> sizes_mib = {0, 1, 449, 450, 451};
    for (std::uint64_t mib = 2'048; mib <= 143'360; mib += 256) sizes_mib.push_back(mib);
    ASSERT_EQ(sizes_mib.size(), 558u);
    for (const std::uint64_t context : {4'096u, 131'072u, 1'048'576u}) {
        for (const std::uint64_t host_gib : {8u, 32u, 128u}) {
            MachineFacts machine = machine_of(kP96);
            machine.host_available_bytes = host_gib * kGiB;
            std::vector<std::uint64_t> best;
            std::uint64_t last_short = 0, last_mib = 0;
            for (const std::uint64_t mib : sizes_mib) {
                Request request = with_context(context);
                request.vram_bytes.set(mib * kMiB, Source::cli);
                const Plan plan = plan_or_fail(flash_q2(), &flash_mtp(), machine, request);
                const std::string where =
                    "vram " + std::to_string(mib) + " MiB, context " + std::to_string(context);
                ASSERT_EQ(validate(plan), std::nullopt) << where;
                const std::vector<std::uint64_t> rank = rank_of_plan(plan);
                EXPECT_GE(rank, best) << where;
                best = rank;
                EXPECT_LE(plan.devices[0].arena.planned_bytes, plan.devices[0].budget_bytes)
                    << where;
                if (!plan.refusal) continue;
                if (last_short != 0) {
                    EXPECT_EQ(last_short - plan.refusal->short_bytes, (mib - last_mib) * kMiB)
                        << where;
                }
                last_short = plan.refusal->short_bytes;
                last_mib = mib;
            }
        }
    }
}

TEST(PlanSweep, TotalMemoryDoesNotMatterOnlyWhatIsGiven) {
    MachineFacts small = machine_of(kP96), large = machine_of(kP96);
    small.devices[0].total_bytes = 1;
    Request request = request_with_mtp();
    request.vram_bytes.set(50 * kGiB, Source::cli);
    Plan a = plan_or_fail(flash_q2(), &flash_mtp(), small, request);
    Plan b = plan_or_fail(flash_q2(), &flash_mtp(), large, request);
    a.devices[0].facts = b.devices[0].facts;
    EXPECT_EQ(a, b);
}

TEST(PlanFloor, FitsAtTheExactByteAndNotOneBelow) {
    Request request = with_context(131'072);
    request.vram_bytes.set(0, Source::cli);
    const Plan refused = plan_on(kP96, request);
    ASSERT_TRUE(refused.refusal);
    const std::uint64_t floor = refused.refusal->short_bytes;
    request.vram_bytes.set(floor, Source::cli);
    EXPECT_FALSE(plan_on(kP96, request).refusal);
    request.vram_bytes.set(floor - 1, Source::cli);
    const Plan one_short = plan_on(kP96, request);
    ASSERT_TRUE(one_short.refusal);
    EXPECT_EQ(one_short.refusal->short_bytes, 1u);
}

TEST(PlanRefusal, KeepsARequiredContextAndNamesWhatWouldFit) {
    Request request = request_with_mtp();
    require(request, "context=1048576");
    request.spill.set(false, Source::yaml);
    const Plan plan = plan_on(kP24, request);
    ASSERT_TRUE(plan.refusal);
    EXPECT_EQ(plan.grant.context_tokens, 1'048'576u);
    bool spill_offered = false;
    for (const Suggestion& suggestion : plan.refusal->suggestions)
        spill_offered |= suggestion.option == "spill: true";
    EXPECT_TRUE(spill_offered);
}

TEST(PlanOptions, ForcedHostExpertsLeaveTheRestToThePlanner) {
    Request request = request_with_mtp();
    require(request, "context=131072");
    request.experts.set(Placement::host, Source::yaml);
    const Plan plan = plan_on(kP24, request);
    ASSERT_FALSE(plan.refusal);
    EXPECT_EQ(plan.experts_on_devices(), 0u);
    EXPECT_EQ(plan.grant.context_tokens, 131'072u);
    EXPECT_TRUE(plan.grant.mtp);
    EXPECT_FALSE(plan.grant.embedding_on_host);
}

TEST(PlanOptions, CapOnDeviceExpertsIsACapAndBelowTheFloorARefusal) {
    Request request = request_with_mtp();
    request.experts_device_max_bytes.set(4 * kGiB, Source::yaml);
    const Plan plan = plan_on(kP96, request);
    ASSERT_FALSE(plan.refusal);
    EXPECT_LE(class_bytes(plan, RegionClass::expert_weights), 4 * kGiB);
    EXPECT_GT(class_bytes(plan, RegionClass::expert_weights),
              4 * kGiB - expert_size(flash_q2(), 0).slot_bytes);

    const std::uint64_t floor = 12 * expert_size(flash_q2(), 0).slot_bytes;
    request.mtp.set(Wish::off, Source::yaml);
    request.experts_device_max_bytes.set(floor - 1, Source::yaml);
    const Plan refused = plan_on(kP96, request);
    ASSERT_TRUE(refused.refusal);
    EXPECT_EQ(refused.refusal->short_bytes, 1u);
    EXPECT_EQ(refused.refusal->floor_bytes, floor);
    request.experts_device_max_bytes.set(floor, Source::yaml);
    EXPECT_FALSE(plan_on(kP96, request).refusal);
}

TEST(PlanOptions, WithoutNvmeTheDevicesHoldWhatTheHostCannot) {
    Request request = with_context(131'072);
    request.nvme.set("off", Source::cli);
    const Plan plan = plan_on(kP96, request);
    ASSERT_FALSE(plan.refusal);
    EXPECT_EQ(plan.nvme.experts, 0u);
    request.vram_bytes.set(24 * kGiB, Source::cli);
    const Plan refused = plan_on(kP96, request);
    ASSERT_TRUE(refused.refusal)
        << "40,960 MiB of host and 24 GiB cannot hold 74,304 MiB of experts";
    request.host_bytes.set(128 * kGiB, Source::cli);
    EXPECT_FALSE(plan_on(kP96, request).refusal);
}

TEST(PlanOptions, MaximumContextIsTheLargestThatFits) {
    Request request = request_with_mtp();
    request.context_is_max.set(true, Source::cli);
    request.vram_bytes.set(2 * kGiB, Source::cli);
    const Plan plan = plan_on(kP8, request);
    ASSERT_FALSE(plan.refusal);
    ASSERT_LT(plan.grant.context_tokens, 1'048'576u);
    const auto with = [&](std::uint64_t tokens) {
        Request fixed = request_with_mtp();
        fixed.vram_bytes.set(2 * kGiB, Source::cli);
        require(fixed, "context=" + std::to_string(tokens));
        return plan_on(kP8, fixed);
    };
    EXPECT_FALSE(with(plan.grant.context_tokens).refusal);
    EXPECT_TRUE(with(plan.grant.context_tokens + kContextStepTokens).refusal);
    request.vram_bytes = {};
    EXPECT_EQ(plan_on(kP141, request).grant.context_tokens, 1'048'576u);
}

TEST(PlanOptions, SessionsMultiplyTheCacheAndNotTheWorkspace) {
    Request request = with_context(32'768);
    const Plan one = plan_on(kP141, request);
    request.sessions.set(3, Source::cli);
    const Plan three = plan_on(kP141, request);
    EXPECT_EQ(class_bytes(three, RegionClass::kv), 3 * class_bytes(one, RegionClass::kv));
    EXPECT_EQ(class_bytes(three, RegionClass::workspace), class_bytes(one, RegionClass::workspace));
}

TEST(PlanUnified, HasNoHostTierBesideTheDevice) {
    MachineFacts machine = machine_of(kP96);
    machine.unified_memory = true;
    const Plan plan = plan_or_fail(flash_q2(), &flash_mtp(), machine, request_with_mtp());
    ASSERT_FALSE(plan.refusal);
    EXPECT_EQ(plan.host.budget_bytes, 0u);
    EXPECT_EQ(plan.host.arena.planned_bytes, 0u);
}

TEST(PlanProperty, HoldsItsRulesForRandomRequests) {
    const std::uint64_t seed = 20'261'201;
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t limit) { return random() % limit; };
    for (int round = 0; round < 400; ++round) {
        MachineFacts machine = machine_of(below(4) == 0 ? kP5090x2 : kP96);
        machine.host_available_bytes = below(160) * kGiB;
        Request request = below(2) == 0 ? request_with_mtp() : default_request();
        request.vram_bytes.set(below(150) * kGiB + below(kGiB), Source::cli);
        request.reserve_bytes.set(below(2 * kGiB), Source::cli);
        request.context.set({.target = 4'096 + below(1'000'000), .minimum = 4'096}, Source::yaml);
        request.prefill_chunk.set({.target = 256 + below(8'000), .minimum = 1 + below(256)},
                                  Source::yaml);
        request.sessions.set(1 + below(3), Source::yaml);
        request.spill.set(below(4) != 0, Source::yaml);
        request.nvme.set(below(3) == 0 ? "off" : "allow", Source::yaml);
        request.precise.set(below(4) == 0, Source::yaml);
        request.rounding.set(below(4) != 0, Source::yaml);
        request.embedding.set(static_cast<Placement>(below(3)), Source::yaml);
        if (below(3) == 0) request.experts_device_max_bytes.set(below(80) * kGiB, Source::yaml);
        std::vector<Step> ladder = default_ladder();
        if (below(3) == 0) std::shuffle(ladder.begin(), ladder.end(), random);
        request.ladder.set(ladder, Source::yaml);
        const Model* mtp = request.mtp_model.value.empty() ? nullptr : &flash_mtp();
        const Result<Plan> plan = make_plan(flash_q2(), mtp, machine, request);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        ASSERT_EQ(validate(*plan), std::nullopt) << "seed " << seed << " round " << round;
        ASSERT_EQ(*make_plan(flash_q2(), mtp, machine, request), *plan)
            << "not deterministic, round " << round;
        if (plan->refusal) {
            EXPECT_GT(plan->refusal->short_bytes, 0u) << "round " << round;
            continue;
        }
        EXPECT_GE(plan->grant.context_tokens, request.context.value.minimum);
        EXPECT_GE(plan->grant.chunk_tokens, request.prefill_chunk.value.minimum);
        EXPECT_LE(plan->host.arena.planned_bytes, plan->host.budget_bytes);
        if (request.nvme.value == "off") {
            EXPECT_EQ(plan->nvme.experts, 0u);
        }
    }
}

}  // namespace
}  // namespace plimsoll::test
