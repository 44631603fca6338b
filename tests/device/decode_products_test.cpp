#include <deque>

#include "tests/device/decode_support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

constexpr float kEpsilon = 1e-6f;

struct Case {
    WeightType type;
    std::uint32_t n_in;
    std::uint32_t n_out;
    std::uint32_t n_groups = 1;
    bool normed = false;
    std::uint32_t rows_min = 0;
};
std::string text_of(const Case& c) {
    return "type " + std::to_string(static_cast<std::uint32_t>(c.type)) + ", n_in " +
           std::to_string(c.n_in) + ", n_out " + std::to_string(c.n_out) + ", n_groups " +
           std::to_string(c.n_groups) + ", normed " + std::to_string(c.normed);
}

/// One product on the device, with all that it reads.
struct OnDevice {
    OnDevice(Random& random, const Case& c)
        : what(text_of(c)),
          host(random, c.type, c.n_in, c.n_out),
          x(extreme_values(random, std::size_t{c.n_in} * c.n_groups)),
          norm(uniform_values(random, c.n_in)),
          weight(host),
          input(x),
          norm_weight(norm),
          output(c.n_out),
          expected(cpu_product(host, x, c.normed ? norm.data() : nullptr, c.n_groups, kEpsilon)) {
        product = {.weight = weight.matrix(),
                   .input = input.data(),
                   .norm_weight = c.normed ? norm_weight.data() : nullptr,
                   .output = output.data(),
                   .n_groups = c.n_groups,
                   .rows_min = c.rows_min};
    }
    void expect_product() const {
        expect_close(output.download(), expected, {.cosine_min = 0.99999999, .relative_max = 2e-5},
                     what);
        EXPECT_TRUE(output.guard_intact()) << what;
    }

    std::string what;
    RandomWeight host;
    std::vector<float> x, norm;
    DeviceWeight weight;
    DeviceArray<float> input, norm_weight, output;
    std::vector<float> expected;
    cuda::DecodeProduct product;
};

class DecodeProducts : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Types, DecodeProducts, testing::ValuesIn(kAllTypes));

TEST_P(DecodeProducts, AreThoseOfTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(501);
    DeviceStep step;
    const bool is_block_of_256 = info_of(GetParam()).block_elements == 256;
    for (const Case& c : {Case{GetParam(), is_block_of_256 ? 256u : 96u, 3},
                          Case{GetParam(), is_block_of_256 ? 768u : 160u, 37, 1, true},
                          Case{GetParam(), 2048, 130}, Case{GetParam(), 512, 4 * 18, 4}}) {
        OnDevice made(random, c);
        cuda::decode_products({&made.product, 1}, kEpsilon, step.launch());
        step.wait();
        made.expect_product();
    }
}

TEST(DecodeProductsTogether, ShareALaunchWithTheirOwnTypesAndWidths) {
    PLIMSOLL_NEEDS_GPU();
    Random random(502);
    DeviceStep step;
    std::deque<OnDevice> made;
    std::vector<cuda::DecodeProduct> products;
    for (const Case& c :
         {Case{WeightType::q8_0, 1024, 100}, Case{WeightType::q8_0, 1024, 60, 1, true},
          Case{WeightType::f16, 1024, 33}, Case{WeightType::iq2_xxs, 512, 9},
          Case{WeightType::f32, 36, 24}, Case{WeightType::q2_k, 256, 70},
          Case{WeightType::q8_0, 64, 16, 8}, Case{WeightType::q4_k, 1280, 5}}) {
        made.emplace_back(random, c);
        products.push_back(made.back().product);
    }
    cuda::decode_products(products, kEpsilon, step.launch());
    step.wait();
    for (const OnDevice& one : made) one.expect_product();
}

TEST(DecodeProductsTogether, AddUpTheSegmentsOfWideRows) {
    PLIMSOLL_NEEDS_GPU();
    Random random(506);
    DeviceStep step;
    OnDevice wide(random, {WeightType::iq2_xxs, 4352, 9});
    cuda::decode_products({&wide.product, 1}, kEpsilon, step.launch());
    step.wait();
    wide.expect_product();
}

TEST(DecodeProductsTogether, AreTheSameBitsInAnyCompany) {
    PLIMSOLL_NEEDS_GPU();
    Random random(503);
    DeviceStep step;
    OnDevice one(random, {WeightType::q8_0, 4096, 50});
    OnDevice other(random, {WeightType::f16, 256, 200});
    cuda::decode_products({&one.product, 1}, kEpsilon, step.launch());
    step.wait();
    const std::vector<float> alone = one.output.download();
    one.output.poison();
    const cuda::DecodeProduct both[] = {other.product, one.product};
    cuda::decode_products(both, kEpsilon, step.launch());
    step.wait();
    expect_equal(one.output.download(), alone, one.what);
}

TEST(DecodeProductsTogether, SkipWhatNoIndexerNeeds) {
    PLIMSOLL_NEEDS_GPU();
    Random random(504);
    DeviceStep step;
    OnDevice always(random, {WeightType::q8_0, 64, 20});
    OnDevice seldom(random, {WeightType::f16, 64, 20, 1, false, 8});
    const cuda::DecodeProduct both[] = {always.product, seldom.product};
    cuda::decode_products(both, kEpsilon, step.launch(34));  // 8 rows
    step.wait();
    always.expect_product();
    for (const float y : seldom.output.download()) EXPECT_TRUE(std::isnan(y));
    cuda::decode_products(both, kEpsilon, step.launch(35));  // 9
    step.wait();
    seldom.expect_product();
}

TEST(DecodeProductsTogether, AreSplitOverMoreBlocksThanRunAtOnce) {
    PLIMSOLL_NEEDS_GPU();
    Random random(506);
    DeviceStep step;
    OnDevice made(random, {WeightType::q8_0, 32, 50001});
    cuda::decode_products({&made.product, 1}, kEpsilon, step.launch());
    step.wait();
    made.expect_product();
}

TEST(DecodeProductsTogether, OfZerosAndOfTinyValuesAreFinite) {
    PLIMSOLL_NEEDS_GPU();
    Random random(505);
    DeviceStep step;
    OnDevice made(random, {WeightType::q2_k, 512, 12});
    for (const float value : {0.0f, 1e-41f}) {
        made.input.upload(std::vector<float>(512, value));
        cuda::decode_products({&made.product, 1}, kEpsilon, step.launch());
        step.wait();
        for (const float y : made.output.download()) EXPECT_NEAR(y, 0.0f, 1e-30f);
    }
}

}  // namespace
}  // namespace plimsoll::kernels
