#include "tests/device/decode_support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

constexpr float kEpsilon = 1e-6f;

struct HcShape {
    WeightType fn;
    std::uint32_t n_streams, hidden;
    WeightType product;

    [[nodiscard]] std::string text() const {
        return "fn type " + std::to_string(static_cast<std::uint32_t>(fn)) + ", streams " +
               std::to_string(n_streams) + ", hidden " + std::to_string(hidden) +
               ", product type " + std::to_string(static_cast<std::uint32_t>(product));
    }
};

using T = WeightType;
const HcShape kShapes[] = {
    {T::f16, 4, 4096, T::q8_0}, {T::f16, 4, 256, T::q2_k}, {T::f32, 4, 96, T::f32},
    {T::bf16, 4, 40, T::f16},   {T::f16, 2, 1032, T::f32}, {T::f32, 1, 24, T::bf16},
    {T::f16, 8, 128, T::q8_0},  {T::f16, 3, 256, T::q8_0}, {T::f16, 4, 4864, T::iq2_xxs},
    {T::bf16, 8, 4104, T::f32},
};

/// Streams that a long context leaves: a few large values among ordinary ones.
std::vector<float> stream_values(Random& random, std::size_t n) {
    std::vector<float> values = extreme_values(random, n);
    for (std::size_t i = 0; i < n; i += 97) values[i] *= 1000.0f;
    return values;
}

/// A product of random weights on both sides.
struct Product {
    RandomWeight weight;
    DeviceWeight on_device;
    DeviceArray<float> output;

    Product(Random& random, WeightType type, std::uint32_t n_in, std::uint32_t n_out)
        : weight(random, type, n_in, n_out), on_device(weight), output(n_out) {}
    [[nodiscard]] cuda::DecodeProduct of(const float* input) const {
        return {.weight = on_device.matrix(), .input = input, .output = output.data()};
    }
};

/// The mix of the streams on both sides, and products of it.
void expect_mix(HcSite& site, const Product& product, DeviceStep& step, const Limits& limits,
                const std::string& what) {
    site.mix_on_host();
    const Product* const products[] = {&product, &product};
    DeviceArray<float> other(product.weight.matrix.n_out);
    cuda::DecodeProduct launched[] = {products[0]->of(nullptr), products[1]->of(nullptr)};
    launched[1].output = other.data();
    cuda::decode_mixed_products(launched, site.mix(), step.launch());
    step.wait();
    site.expect_mixed(limits, what);
    const std::vector<float> expected =
        cpu_product(product.weight, site.device_mixed.download(), nullptr, 1, kEpsilon);
    expect_close(product.output.download(), expected,
                 {.cosine_min = 0.99999999, .relative_max = 2e-5}, what + ", product");
    expect_equal(other.download(), product.output.download(), what + ", the same product");
    EXPECT_TRUE(product.output.guard_intact()) << what;
}

TEST(DecodeHc, MixesAndMergesAsTheCpu) {
    PLIMSOLL_NEEDS_GPU();
    Random random(514);
    for (const HcShape& shape : kShapes) {
        DeviceStep step;
        HcSite site(random, shape.fn, shape.n_streams,
                    stream_values(random, std::size_t{shape.n_streams} * shape.hidden));
        const Product reader(random, shape.product, shape.hidden, 21);
        const Product writer(random, T::q8_0, 64, shape.hidden);
        site.start(step);
        for (int i = 0; i < 2; ++i) {
            const std::string what = shape.text() + ", layer " + std::to_string(i);
            expect_mix(site, reader, step, {.relative_max = 1e-5}, what);
            const std::vector<float> x = uniform_values(random, 64, 2.0f);
            const DeviceArray<float> input(x);
            cuda::decode_merged_product(writer.of(input.data()), site.merge(), step.launch());
            step.wait();
            site.merge_on_host(cpu_product(writer.weight, x, nullptr, 1, kEpsilon));
            site.expect_merged({.relative_max = 2e-5}, what);
            for (const float y : writer.output.download()) ASSERT_TRUE(std::isnan(y)) << what;
        }
    }
}

TEST(DecodeHc, NormsAMixOfStreamsThatNearlyCancel) {
    PLIMSOLL_NEEDS_GPU();
    Random random(515);
    // Pairs of streams of opposite sign: with coefficients near one another the mix is a small part
    // of what is summed.
    for (const std::uint32_t hidden : {256u, 96u, 4128u}) {
        std::vector<float> streams = uniform_values(random, 4 * hidden, 10.0f);
        for (std::uint32_t i = 0; i < hidden; ++i) {
            streams[hidden + i] = -streams[i] + 1e-3f * random.uniform();
            streams[3 * hidden + i] = -streams[2 * hidden + i];
        }
        DeviceStep step;
        HcSite site(random, T::f16, 4, streams);
        const Product reader(random, T::q8_0, hidden, 8);
        site.start(step);
        expect_mix(site, reader, step, {.relative_max = 1e-4}, "hidden " + std::to_string(hidden));
    }
}

TEST(DecodeHc, GivesTheSameBitsAgain) {
    PLIMSOLL_NEEDS_GPU();
    Random random(516);
    const std::vector<float> streams = stream_values(random, std::size_t{4} * 1024);
    DeviceStep step;
    HcSite site(random, T::f16, 4, streams);
    const Product reader(random, T::q8_0, 1024, 64);
    std::vector<float> first;
    for (int i = 0; i < 2; ++i) {
        site.start(step);
        const cuda::DecodeProduct product = reader.of(nullptr);
        cuda::decode_mixed_products({&product, 1}, site.mix(), step.launch());
        step.wait();
        if (i == 0) first = reader.output.download();
    }
    expect_equal(reader.output.download(), first, "again");
}

}  // namespace
}  // namespace plimsoll::kernels
