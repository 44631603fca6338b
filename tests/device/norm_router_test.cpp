#include <algorithm>

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct NormCase {
    std::uint64_t n_rows;
    std::uint32_t dim;
    bool weighted;
    bool in_place;
};

TEST(GpuRmsNorm, AgreesWithTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(501);
    DeviceStep step;
    for (const NormCase& shape : {NormCase{3, 4, true, false}, NormCase{9, 128, false, false},
                                  NormCase{17, 512, true, true}, NormCase{1, 1024, true, false},
                                  NormCase{2, 1028, false, true}, NormCase{3, 4096, true, false},
                                  NormCase{0, 512, true, false}}) {
        const std::string what = "rows " + std::to_string(shape.n_rows) + ", dim " +
                                 std::to_string(shape.dim) + (shape.weighted ? ", weighted" : "") +
                                 (shape.in_place ? ", in place" : "");
        const std::size_t n = shape.n_rows * shape.dim;
        const std::vector<float> input = extreme_values(random, n);
        const std::vector<float> weight = uniform_values(random, shape.dim);
        std::vector<float> expected(n);
        cpu::rms_norm({input.data(), shape.weighted ? weight.data() : nullptr, expected.data(),
                       shape.n_rows, shape.dim, 1e-6f},
                      Workers(1));
        const DeviceArray<float> device_input(input), device_weight(weight), separate(n);
        const DeviceArray<std::uint16_t> halves(n);
        const DeviceArray<float>& output = shape.in_place ? device_input : separate;
        cuda::rms_norm({device_input.data(), shape.weighted ? device_weight.data() : nullptr,
                        output.data(), shape.n_rows, shape.dim, 1e-6f},
                       halves.data(), step.launch());
        step.wait();
        expect_close(output.download(), expected, {.relative_max = 2e-6}, what);
        expect_equal(halves.download(), f16_of(output.download()), what + ", float16");
        EXPECT_TRUE(output.guard_intact() && halves.guard_intact()) << what;
    }
}

struct RouterCase {
    std::uint32_t n_tokens, n_experts, n_used;
    bool biased;
};

TEST(GpuRouter, ChoosesAsTheCpuDoes) {
    PLIMSOLL_NEEDS_GPU();
    Random random(502);
    DeviceStep step;
    for (const RouterCase& shape :
         {RouterCase{5, 4, 2, true}, RouterCase{1, 256, 6, true}, RouterCase{9, 256, 8, false},
          RouterCase{3, 33, 16, true}, RouterCase{2, 1000, 6, true}}) {
        const std::string what = "tokens " + std::to_string(shape.n_tokens) + ", experts " +
                                 std::to_string(shape.n_experts) + ", used " +
                                 std::to_string(shape.n_used);
        // Quarters, so that many scores are equal, and the tails of softplus.
        std::vector<float> logits(std::size_t{shape.n_tokens} * shape.n_experts);
        for (float& logit : logits) logit = static_cast<float>(random.below(200)) / 4.0f - 25.0f;
        std::vector<float> bias(shape.n_experts);
        for (float& value : bias) value = static_cast<float>(random.below(4)) / 8.0f;
        const std::size_t n = std::size_t{shape.n_tokens} * shape.n_used;
        std::vector<std::int32_t> ids(n);
        std::vector<float> weights(n);
        RouterParams params{logits.data(),  shape.biased ? bias.data() : nullptr,
                            nullptr,        nullptr,
                            ids.data(),     weights.data(),
                            shape.n_tokens, shape.n_experts,
                            shape.n_used,   1.5f};
        cpu::route(params, Workers(1));
        const DeviceArray<float> device_logits(logits), device_bias(bias), device_weights(n);
        const DeviceArray<std::int32_t> device_ids(n);
        params.logits = device_logits.data();
        params.bias = shape.biased ? device_bias.data() : nullptr;
        params.expert_ids = device_ids.data();
        params.expert_weights = device_weights.data();
        cuda::route(params, step.launch());
        step.wait();
        expect_equal(device_ids.download(), ids, what);
        expect_close(device_weights.download(), weights, {.relative_max = 1e-6}, what);
        EXPECT_TRUE(device_ids.guard_intact() && device_weights.guard_intact()) << what;
    }
}

TEST(GpuRouter, ReadsAHashTableByTokenOrByTheStep) {
    PLIMSOLL_NEEDS_GPU();
    Random random(503);
    DeviceStep step;
    constexpr std::uint32_t kTokens = 6, kExperts = 20, kUsed = 3, kVocab = 50;
    const std::vector<float> logits = uniform_values(random, kTokens * kExperts, 4.0f);
    std::vector<std::int32_t> table(kVocab * kUsed), tokens(kTokens), ids(kTokens * kUsed);
    for (std::int32_t& id : table) id = static_cast<std::int32_t>(random.below(kExperts));
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(kVocab));
    std::vector<float> weights(kTokens * kUsed);
    RouterParams params{logits.data(),  nullptr, table.data(), tokens.data(), ids.data(),
                        weights.data(), kTokens, kExperts,     kUsed,         2.5f};
    cpu::route(params, Workers(1));

    const DeviceArray<float> device_logits(logits), device_weights(weights.size());
    const DeviceArray<std::int32_t> device_table(table), device_tokens(tokens),
        device_ids(ids.size());
    params.logits = device_logits.data();
    params.table = device_table.data();
    params.token_ids = device_tokens.data();
    params.expert_ids = device_ids.data();
    params.expert_weights = device_weights.data();
    cuda::route(params, step.launch());
    step.wait();
    expect_equal(device_ids.download(), ids, "by token");
    expect_close(device_weights.download(), weights, {.relative_max = 1e-6}, "by token");

    params.token_ids = nullptr;
    params.n_tokens = 1;
    cuda::route(params, step.launch(9, tokens[0]));
    step.wait();
    const std::vector<std::int32_t> of_step = device_ids.download();
    EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + kUsed, of_step.begin()));
}

}  // namespace
}  // namespace plimsoll::kernels
