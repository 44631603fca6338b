#include <algorithm>
#include <deque>
#include <numeric>

#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Routing {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
};

Routing route(const std::vector<float>& logits, const float* bias, std::uint32_t n_experts,
              std::uint32_t k) {
    const auto n_tokens = static_cast<std::uint32_t>(logits.size() / n_experts);
    Routing out{std::vector<std::int32_t>(n_tokens * k), std::vector<float>(n_tokens * k)};
    cpu::route({logits.data(), bias, nullptr, nullptr, out.ids.data(), out.weights.data(), n_tokens,
                n_experts, k, 1.5f},
               Workers(2));
    return out;
}

double reference_affinity(float logit) {
    const double x = static_cast<double>(logit);
    return std::sqrt(x > 20 ? x : x < -20 ? std::exp(x) : std::log1p(std::exp(x)));
}

TEST(Router, ChoosesByBiasedScoreAndWeighsByTheUnbiased) {
    Random random(101);
    const std::uint32_t n = 32, k = 6;
    std::vector<float> logits = extreme_values(random, 20 * n);
    const std::vector<float> bias = uniform_values(random, n, 0.3f);
    const Routing routing = route(logits, bias.data(), n, k);
    for (std::size_t t = 0; t < 20; ++t) {
        std::vector<std::int32_t> order(n);
        std::iota(order.begin(), order.end(), 0);
        const auto score = [&](std::int32_t e) {
            const auto i = static_cast<std::size_t>(e);
            return static_cast<float>(reference_affinity(logits[t * n + i])) + bias[i];
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return score(a) > score(b); });
        double sum = 0;
        for (std::size_t i = 0; i < k; ++i)
            sum += reference_affinity(logits[t * n + static_cast<std::size_t>(order[i])]);
        for (std::size_t i = 0; i < k; ++i) {
            ASSERT_EQ(routing.ids[t * k + i], order[i]) << "token " << t;
            const double expected =
                1.5 * reference_affinity(logits[t * n + static_cast<std::size_t>(order[i])]) / sum;
            ASSERT_NEAR(static_cast<double>(routing.weights[t * k + i]), expected, 1e-6);
        }
    }
}

TEST(Router, TiesGoToTheLowerIdAndTinySumsAreFloored) {
    const Routing equal = route(std::vector<float>(16, 0.25f), nullptr, 16, 4);
    EXPECT_EQ(equal.ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
    const Routing tiny = route(std::vector<float>(16, -60.0f), nullptr, 16, 4);
    for (const float weight : tiny.weights)
        EXPECT_NEAR(static_cast<double>(weight), 1.5 * std::exp(-30.0) / 6.103515625e-5, 1e-12);
}

TEST(Router, HashTableGivesTheIdsOfTheToken) {
    const std::vector<std::int32_t> table = {0, 1, 5, 2, 7, 3}, tokens = {2, 0};
    const std::vector<float> logits(2 * 8, 1.0f);
    std::vector<std::int32_t> ids(4);
    std::vector<float> weights(4);
    cpu::route({logits.data(), nullptr, table.data(), tokens.data(), ids.data(), weights.data(), 2,
                8, 2, 2.0f},
               Workers(1));
    EXPECT_EQ(ids, (std::vector<std::int32_t>{7, 3, 0, 1}));
    for (const float weight : weights) EXPECT_FLOAT_EQ(weight, 1.0f);
}

TEST(GroupByExpert, ListsAssignmentsInTokenOrder) {
    Random random(102);
    const std::uint32_t n_tokens = 50, n_experts = 9, k = 3;
    std::vector<std::int32_t> ids(n_tokens * k), offsets(n_experts + 1), assignments(n_tokens * k);
    for (auto& id : ids)
        id = static_cast<std::int32_t>(random.below(n_experts - 1));  // the last stays empty
    cpu::group_by_expert({ids.data(), offsets.data(), assignments.data(), n_tokens, n_experts, k});
    EXPECT_EQ(offsets.front(), 0);
    EXPECT_EQ(offsets.back(), 150);
    for (std::uint32_t e = 0; e < n_experts; ++e)
        for (std::int32_t i = offsets[e]; i < offsets[e + 1]; ++i) {
            const std::int32_t a = assignments[static_cast<std::size_t>(i)];
            EXPECT_EQ(ids[static_cast<std::size_t>(a)], static_cast<std::int32_t>(e));
            if (i > offsets[e]) {
                EXPECT_LT(assignments[static_cast<std::size_t>(i) - 1], a);
            }
        }
}

struct Types {
    WeightType gate_up;
    WeightType down;
};

/// Random experts and a routed batch.
struct Experts {
    static constexpr std::uint32_t kHidden = 256, kInner = 512, kExperts = 5, kUsed = 3,
                                   kTokens = 23;
    std::deque<RandomWeight> gates, ups, downs;
    std::vector<float> x, weights;
    std::vector<std::int32_t> ids;

    Experts(Random& random, Types types) {
        for (std::uint32_t e = 0; e < kExperts; ++e) {
            gates.emplace_back(random, types.gate_up, kHidden, kInner);
            ups.emplace_back(random, types.gate_up, kHidden, kInner);
            downs.emplace_back(random, types.down, kInner, kHidden);
        }
        x = uniform_values(random, kTokens * kHidden, 9.0f);  // large enough that the clamp acts
        weights = uniform_values(random, kTokens * kUsed);
        for (std::uint32_t t = 0; t < kTokens; ++t)
            for (std::uint32_t i = 0; i < kUsed; ++i)
                ids.push_back(static_cast<std::int32_t>((t * 7 + i * (1 + t % 2)) % kExperts));
    }

    /// Output when tokens [first, first + n) go through in one call, or expert by expert.
    [[nodiscard]] std::vector<float> run(std::uint32_t first, std::uint32_t n, ActivationMode mode,
                                         bool one_call, std::uint32_t n_threads) const {
        const Workers workers(n_threads);
        const ActivationFormat format = activation_format(gates[0].matrix.type, mode);
        std::vector<std::byte> input(activation_row_bytes(format, std::size_t{n} * kHidden));
        const float* rows = x.data() + std::size_t{first} * kHidden;
        if (format == ActivationFormat::f32)
            std::memcpy(input.data(), rows, input.size());
        else
            cpu::quantize_activations({rows, input.data(), n, kHidden, format}, workers);
        std::vector<std::int32_t> offsets(kExperts + 1), assignments(n * kUsed);
        cpu::group_by_expert({ids.data() + std::size_t{first} * kUsed, offsets.data(),
                              assignments.data(), n, kExperts, kUsed});
        std::vector<std::byte> workspace(
            expert_ffn_workspace_bytes(n * kUsed, kInner, downs[0].matrix.type, mode));
        std::vector<float> output(n * kHidden, 1.0f);
        std::vector<ExpertRun> runs;
        for (std::uint32_t e = 0; e < kExperts; ++e)
            if (offsets[e] < offsets[e + 1])
                runs.push_back({gates[e].matrix, ups[e].matrix, downs[e].matrix,
                                static_cast<std::uint32_t>(offsets[e]),
                                static_cast<std::uint32_t>(offsets[e + 1])});
        ExpertFfnParams params{runs,
                               assignments.data(),
                               weights.data() + std::size_t{first} * kUsed,
                               input.data(),
                               output.data(),
                               workspace.data(),
                               kUsed,
                               n,
                               kHidden,
                               kInner,
                               10.0f,
                               mode,
                               true};
        if (one_call) {
            cpu::expert_ffn(params, workers);
        } else {
            for (const ExpertRun& run : runs) {
                params.runs = {&run, 1};
                cpu::expert_ffn(params, workers);
            }
        }
        return output;
    }

    [[nodiscard]] std::vector<double> reference() const {
        std::vector<double> y(kTokens * kHidden, 1.0);
        for (std::size_t a = 0; a < ids.size(); ++a) {
            const auto e = static_cast<std::size_t>(ids[a]);
            const float* input = &x[a / kUsed * kHidden];
            std::vector<double> mid(kInner);
            for (std::size_t f = 0; f < kInner; ++f) {
                double g = 0, u = 0;
                for (std::size_t i = 0; i < kHidden; ++i) {
                    g += gates[e].values[f * kHidden + i] * static_cast<double>(input[i]);
                    u += ups[e].values[f * kHidden + i] * static_cast<double>(input[i]);
                }
                g = std::min(g, 10.0);
                mid[f] = g * reference_sigmoid(g) * std::clamp(u, -10.0, 10.0) *
                         static_cast<double>(weights[a]);
            }
            for (std::size_t o = 0; o < kHidden; ++o)
                for (std::size_t f = 0; f < kInner; ++f)
                    y[a / kUsed * kHidden + o] += mid[f] * downs[e].values[o * kInner + f];
        }
        return y;
    }
};

class ExpertFfn : public testing::TestWithParam<Types> {};
INSTANTIATE_TEST_SUITE_P(Recipes, ExpertFfn,
                         testing::Values(Types{WeightType::iq2_xxs, WeightType::q2_k},
                                         Types{WeightType::q4_k, WeightType::q4_k},
                                         Types{WeightType::q8_0, WeightType::q8_0},
                                         Types{WeightType::f16, WeightType::f16}));

TEST_P(ExpertFfn, AgreesWithTheReference) {
    Random random(103);
    const Experts experts(random, GetParam());
    const std::vector<double> expected = experts.reference();
    expect_near(experts.run(0, Experts::kTokens, ActivationMode::precise, true, 2), expected, 1e-4);
    // Quantised activations: the same direction, to the noise of 16 bits twice.
    const std::vector<float> fast = experts.run(0, Experts::kTokens, ActivationMode::fast, true, 2);
    double dot = 0, a = 0, b = 0;
    for (std::size_t i = 0; i < fast.size(); ++i) {
        dot += static_cast<double>(fast[i]) * expected[i];
        a += static_cast<double>(fast[i]) * static_cast<double>(fast[i]);
        b += expected[i] * expected[i];
    }
    EXPECT_GT(dot / std::sqrt(a * b), 0.9999999);
}

TEST_P(ExpertFfn, GivesTheSameBitsByExpertByTokenAndInAnyThreadCount) {
    Random random(104);
    const Experts experts(random, GetParam());
    for (const ActivationMode mode : {ActivationMode::precise, ActivationMode::fast}) {
        const std::vector<float> together = experts.run(0, Experts::kTokens, mode, true, 1);
        expect_same(experts.run(0, Experts::kTokens, mode, false, 3), together);
        std::vector<float> apart;
        for (std::uint32_t t = 0; t < Experts::kTokens; ++t) {
            const std::vector<float> one = experts.run(t, 1, mode, true, 2);
            apart.insert(apart.end(), one.begin(), one.end());
        }
        expect_same(apart, together);
    }
}

TEST(SharedExpert, IsARunOverAllTokensWithWeightOneThatSetsTheOutput) {
    Random random(105);
    const RandomWeight gate(random, WeightType::f32, 64, 32), up(random, WeightType::f32, 64, 32),
        down(random, WeightType::f32, 32, 64);
    const std::vector<float> x = uniform_values(random, 3 * 64);
    const std::vector<std::int32_t> assignments = {0, 1, 2};
    const std::vector<float> ones(3, 1.0f);
    std::vector<float> shared(3 * 64, NAN), routed(3 * 64, 0.0f);
    std::vector<std::byte> workspace(
        expert_ffn_workspace_bytes(3, 32, WeightType::f32, ActivationMode::fast));
    const ExpertRun run{gate.matrix, up.matrix, down.matrix, 0, 3};
    cpu::expert_ffn({{&run, 1},
                     nullptr,
                     nullptr,
                     x.data(),
                     shared.data(),
                     workspace.data(),
                     1,
                     3,
                     64,
                     32,
                     10.0f,
                     ActivationMode::fast,
                     false},
                    Workers(2));
    cpu::expert_ffn({{&run, 1},
                     assignments.data(),
                     ones.data(),
                     x.data(),
                     routed.data(),
                     workspace.data(),
                     1,
                     3,
                     64,
                     32,
                     10.0f,
                     ActivationMode::fast,
                     true},
                    Workers(2));
    expect_same(shared, routed);
}

}  // namespace
}  // namespace plimsoll::kernels
