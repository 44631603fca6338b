#include <numeric>

#include "tests/device/decode_support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Case {
    WeightType gate_up;
    WeightType down;
    WeightType shared;
    std::uint32_t hidden = 256;
    std::uint32_t ff_dim = 256;
    std::uint32_t n_experts = 7;
    std::uint32_t k = 3;
    bool hashed = false;
    bool biased = true;
};
std::string text_of(const Case& c) {
    const auto number = [](WeightType type) {
        return std::to_string(static_cast<std::uint32_t>(type));
    };
    return "gate " + number(c.gate_up) + ", down " + number(c.down) + ", shared " +
           number(c.shared) + ", hidden " + std::to_string(c.hidden) + ", ff_dim " +
           std::to_string(c.ff_dim) + ", n_experts " + std::to_string(c.n_experts) + ", k " +
           std::to_string(c.k) + (c.hashed ? ", hashed" : "") + (c.biased ? ", biased" : "");
}

constexpr float kScale = 1.5f, kClamp = 0.5f;  // low enough that it acts

/// The CPU's mix wants a row that has room for the raw products.
std::uint32_t streams_for(std::uint32_t hidden) { return hidden < 24 ? 2 : 4; }

constexpr std::uint32_t kVocab = 11;

std::vector<RandomWeight> random_experts(Random& random, WeightType type, std::uint32_t n_in,
                                         std::uint32_t n_out, std::uint32_t n) {
    std::vector<RandomWeight> experts;
    for (std::uint32_t e = 0; e < n; ++e) experts.emplace_back(random, type, n_in, n_out);
    return experts;
}

/// Weights and inputs of one token, and what the CPU makes of them. The input is a mix of streams.
struct Token {
    Token(Random& random, const Case& shape)
        : c(shape),
          site(random, WeightType::f16, streams_for(c.hidden),
               uniform_values(random, streams_for(c.hidden) * c.hidden)),
          gates(random_experts(random, c.gate_up, c.hidden, c.ff_dim, c.n_experts)),
          ups(random_experts(random, c.gate_up, c.hidden, c.ff_dim, c.n_experts)),
          downs(random_experts(random, c.down, c.ff_dim, c.hidden, c.n_experts)),
          router(random, WeightType::f32, c.hidden, c.n_experts),
          shared_gate(random, c.shared, c.hidden, c.ff_dim),
          shared_up(random, c.shared, c.hidden, c.ff_dim),
          shared_down(random, c.shared, c.ff_dim, c.hidden),
          bias(uniform_values(random, c.n_experts, 0.3f)),
          logits(uniform_values(random, c.n_experts, 3.0f)) {
        site.mix_on_host();
        const auto* router_rows = reinterpret_cast<const float*>(router.bytes.data());
        for (std::uint32_t e = 0; e < c.n_experts; ++e)
            router_logits.push_back(std::inner_product(input().begin(), input().end(),
                                                       router_rows + e * c.hidden, 0.0f));
        for (std::uint32_t i = 0; i < kVocab * c.k; ++i)
            table.push_back(static_cast<std::int32_t>(random.below(c.n_experts)));
    }

    [[nodiscard]] const std::vector<float>& input() const { return site.mixed; }
    void route(std::int32_t token) {
        ids.resize(c.k);
        weights.resize(c.k);
        cpu::route(
            {logits.data(), c.biased ? bias.data() : nullptr, c.hashed ? table.data() : nullptr,
             &token, ids.data(), weights.data(), 1, c.n_experts, c.k, kScale},
            Workers(1));
    }
    void add(const ExpertRun& run, const std::int32_t* assignments, std::vector<float>& y) const {
        const ActivationFormat format = activation_format(run.gate.type, ActivationMode::fast);
        std::vector<std::byte> quantised(activation_row_bytes(format, c.hidden));
        if (format == ActivationFormat::f32)
            std::memcpy(quantised.data(), input().data(), quantised.size());
        else
            cpu::quantize_activations({input().data(), quantised.data(), 1, c.hidden, format},
                                      Workers(1));
        std::vector<std::byte> workspace(
            expert_ffn_workspace_bytes(1, c.ff_dim, run.down.type, ActivationMode::fast));
        cpu::expert_ffn({{&run, 1},
                         assignments,
                         assignments != nullptr ? weights.data() : nullptr,
                         quantised.data(),
                         y.data(),
                         workspace.data(),
                         assignments != nullptr ? c.k : 1,
                         1,
                         c.hidden,
                         c.ff_dim,
                         kClamp,
                         ActivationMode::fast,
                         true},
                        Workers(1));
    }
    [[nodiscard]] std::vector<float> expected() const {
        std::vector<float> y(c.hidden, 0.0f);
        std::vector<std::int32_t> assignments(c.k);
        for (std::uint32_t slot = 0; slot < c.k; ++slot) {
            assignments[slot] = static_cast<std::int32_t>(slot);
            const auto e = static_cast<std::size_t>(ids[slot]);
            add({gates[e].matrix, ups[e].matrix, downs[e].matrix, slot, slot + 1},
                assignments.data(), y);
        }
        add({shared_gate.matrix, shared_up.matrix, shared_down.matrix, 0, 1}, nullptr, y);
        return y;
    }

    Case c;
    HcSite site;
    std::vector<RandomWeight> gates, ups, downs;
    RandomWeight router, shared_gate, shared_up, shared_down;
    std::vector<float> bias;
    std::vector<float> logits;         // what experts are chosen by: clear of ties
    std::vector<float> router_logits;  // what the router makes of the input
    std::vector<std::int32_t> table;
    std::vector<std::int32_t> ids;  // of the CPU
    std::vector<float> weights;
};

/// An expert's gate, up and down follow one another, as in the engine: one stride for all three.
struct ExpertsOnDevice {
    ExpertsOnDevice(const Token& token)
        : gate_bytes(token.gates[0].bytes.size()),
          down_bytes(token.downs[0].bytes.size()),
          down_start(2 * align_up(gate_bytes)),
          stride_bytes(down_start + align_up(down_bytes) + 256),
          bytes(stride_bytes * token.c.n_experts) {
        for (std::size_t e = 0; e < token.c.n_experts; ++e) {
            put(token.gates[e], e * stride_bytes);
            put(token.ups[e], e * stride_bytes + align_up(gate_bytes));
            put(token.downs[e], e * stride_bytes + down_start);
        }
    }
    static std::size_t align_up(std::size_t n) { return (n + 255) / 256 * 256; }
    void put(const RandomWeight& weight, std::size_t at) {
        const std::vector<std::byte> planes = planes_of(weight.matrix.type, weight.bytes);
        bytes.upload(planes.data(), planes.size(), at);
    }
    [[nodiscard]] WeightMatrix matrix(WeightMatrix of, std::size_t at) const {
        of.data = static_cast<const std::byte*>(bytes.data()) + at;
        return of;
    }

    std::size_t gate_bytes, down_bytes, down_start, stride_bytes;
    DeviceBytes bytes;
};

void expect_experts(Random& random, const Case& c, std::int32_t id) {
    const std::string what = text_of(c);
    Token token(random, c);
    token.route(id);
    ExpertsOnDevice experts(token);
    DeviceWeight router(token.router), shared_gate(token.shared_gate), shared_up(token.shared_up),
        shared_down(token.shared_down);
    DeviceArray<float> logits(token.logits), bias(token.bias);
    DeviceArray<std::int32_t> table(token.table), ids(c.k);
    DeviceArray<float> weights(c.k), mid((c.k + 1) * c.ff_dim), output(c.hidden);
    cuda::DecodeExpertsParams params{
        .logits = logits.data(),
        .bias = c.biased ? bias.data() : nullptr,
        .table = c.hashed ? table.data() : nullptr,
        .gate = experts.matrix(token.gates[0].matrix, 0),
        .up = experts.matrix(token.ups[0].matrix, ExpertsOnDevice::align_up(experts.gate_bytes)),
        .down = experts.matrix(token.downs[0].matrix, experts.down_start),
        .expert_stride_bytes = experts.stride_bytes,
        .shared_down = shared_down.matrix(),
        .input = token.site.device_mixed.data(),
        .mid = mid.data(),
        .expert_ids = ids.data(),
        .expert_weights = weights.data(),
        .output = output.data(),
        .merge = {},
        .n_experts = c.n_experts,
        .n_experts_used = c.k,
        .hidden = c.hidden,
        .ff_dim = c.ff_dim,
        .weights_scale = kScale,
        .clamp = kClamp};
    DeviceStep step;
    DeviceArray<float> router_logits(c.n_experts);
    token.site.start(step);
    cuda::decode_router({.router = router.matrix(),
                         .shared_gate = shared_gate.matrix(),
                         .shared_up = shared_up.matrix(),
                         .mix = token.site.mix(),
                         .logits = router_logits.data(),
                         .shared_mid = mid.data() + std::size_t{c.k} * c.ff_dim,
                         .n_experts = c.n_experts,
                         .ff_dim = c.ff_dim,
                         .clamp = kClamp},
                        step.launch(17, id));
    step.wait();
    expect_close(router_logits.download(), token.router_logits,
                 {.cosine_min = 0.9999999, .relative_max = 2e-5}, what + ", logits");
    cuda::decode_experts_up(params, step.launch(17, id));
    step.wait();
    expect_equal(ids.download(), token.ids, what);
    expect_close(weights.download(), token.weights, {.relative_max = 2e-6}, what + ", weights");
    cuda::decode_experts_down(params, step.launch(17, id));
    step.wait();
    expect_close(output.download(), token.expected(),
                 {.cosine_min = 0.9999999, .relative_max = 5e-5}, what);
    token.site.expect_mixed({.relative_max = 1e-5}, what);
    params.merge = token.site.merge();
    cuda::decode_experts_down(params, step.launch(17, id));
    step.wait();
    token.site.merge_on_host(token.expected());
    token.site.expect_merged({.relative_max = 5e-5}, what);
    EXPECT_TRUE(output.guard_intact() && mid.guard_intact() && ids.guard_intact() &&
                weights.guard_intact() && router_logits.guard_intact())
        << what;
}

using T = WeightType;

TEST(DecodeExperts, AreThoseOfTheCpuInEveryRecipe) {
    PLIMSOLL_NEEDS_GPU();
    Random random(601);
    for (const Case& c : {Case{T::iq2_xxs, T::q2_k, T::q8_0}, Case{T::q4_k, T::q4_k, T::q8_0},
                          Case{T::q8_0, T::q8_0, T::q8_0}, Case{T::f16, T::bf16, T::f32},
                          Case{T::q2_k, T::iq2_xxs, T::iq2_xxs}})
        expect_experts(random, c, 4);
}

TEST(DecodeExperts, AreThoseOfTheCpuInOddShapes) {
    PLIMSOLL_NEEDS_GPU();
    Random random(602);
    expect_experts(random, {T::iq2_xxs, T::q2_k, T::q8_0, 768, 512, 9, 6}, 0);
    expect_experts(random, {T::q8_0, T::q8_0, T::q8_0, 96, 160, 4, 4, false, false}, 1);
    expect_experts(random, {T::f32, T::f16, T::q8_0, 32, 64, 40, 1}, 2);
    expect_experts(random, {T::f16, T::f16, T::f16, 8, 24, 300, 16}, 3);
    expect_experts(random, {T::f16, T::q8_0, T::f16, 1160, 32, 3, 2}, 4);
}

TEST(DecodeExperts, TakeTheTablesExpertsWhereTheLayerIsHashed) {
    PLIMSOLL_NEEDS_GPU();
    Random random(603);
    for (const std::int32_t id : {0, 10})
        expect_experts(random, {T::iq2_xxs, T::q2_k, T::q8_0, 256, 256, 5, 3, true}, id);
}

/// The router's choice on the device, by cheap experts.
TEST(DecodeExperts, ChooseTheLowerIdAmongEqualScores) {
    PLIMSOLL_NEEDS_GPU();
    Random random(604);
    DeviceWeight weight(RandomWeight(random, T::f16, 8, 8));
    for (const std::uint32_t n : {16u, 256u, 1024u}) {
        std::vector<float> values(n, 0.25f);
        values[n - 1] = 2.0f;
        values[n / 2] = 2.0f;
        values[0] = -60.0f;
        DeviceArray<float> logits(values), input(std::vector<float>(8, 1.0f));
        DeviceArray<float> weights(4), mid(5 * 8), output(8);
        DeviceArray<std::int32_t> ids(4);
        const WeightMatrix m = weight.matrix();
        DeviceStep step;
        cuda::decode_experts_up({.logits = logits.data(),
                                 .bias = nullptr,
                                 .table = nullptr,
                                 .gate = m,
                                 .up = m,
                                 .down = m,
                                 .expert_stride_bytes = 0,
                                 .shared_down = m,
                                 .input = input.data(),
                                 .mid = mid.data(),
                                 .expert_ids = ids.data(),
                                 .expert_weights = weights.data(),
                                 .output = output.data(),
                                 .merge = {},
                                 .n_experts = n,
                                 .n_experts_used = 4,
                                 .hidden = 8,
                                 .ff_dim = 8,
                                 .weights_scale = 1.0f,
                                 .clamp = kClamp},
                                step.launch());
        step.wait();
        const auto last = static_cast<std::int32_t>(n - 1),
                   middle = static_cast<std::int32_t>(n / 2);
        expect_equal(ids.download(), {middle, last, 1, 2}, std::to_string(n) + " experts");
    }
}

}  // namespace
}  // namespace plimsoll::kernels
