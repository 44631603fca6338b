#include <string>

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Case {
    WeightType type;
    std::uint32_t n_in;
    std::uint32_t n_out;
    std::uint32_t n_tokens;
    std::uint32_t n_groups = 1;
    cuda::ElementType input = cuda::ElementType::f16;
    cuda::ElementType output = cuda::ElementType::f32;
    cuda::Arithmetic arithmetic = cuda::Arithmetic::fast;
    std::uint32_t stride = 0;
    bool accumulate = false;
    float amplitude = 0.0f;  // of uniform inputs; 0: mixed with extreme ones
};

std::string describe(const Case& c) {
    return "type " + std::to_string(static_cast<int>(c.type)) + " n_in " + std::to_string(c.n_in) +
           " n_out " + std::to_string(c.n_out) + " T " + std::to_string(c.n_tokens) + " groups " +
           std::to_string(c.n_groups) + " input " + std::to_string(static_cast<int>(c.input)) +
           " output " + std::to_string(static_cast<int>(c.output)) + " arithmetic " +
           std::to_string(static_cast<int>(c.arithmetic)) + " stride " + std::to_string(c.stride) +
           " accumulate " + std::to_string(c.accumulate);
}

/// The product on the device as float32 [T, stride], and the CPU's in float32.
struct Results {
    std::vector<float> actual;
    std::vector<float> expected;
};

Results run(const Case& c, std::uint64_t seed) {
    Random random(seed);
    const RandomWeight weight(random, c.type, c.n_in, c.n_out);
    const std::size_t n_inputs = std::size_t{c.n_tokens} * c.n_groups * c.n_in;
    std::vector<float> input = c.amplitude > 0 ? uniform_values(random, n_inputs, c.amplitude)
                                               : extreme_values(random, n_inputs);
    const bool halves = c.input == cuda::ElementType::f16;
    const std::vector<std::uint16_t> input_f16 = f16_of(input);
    if (halves) input = f32_of(input_f16);
    const std::size_t stride = c.stride != 0 ? c.stride : c.n_out;
    std::vector<float> before(c.n_tokens * stride, 0.25f);

    const DeviceWeight device_weight(weight);
    const DeviceArray<std::uint16_t> device_f16(input_f16);
    const DeviceArray<float> device_f32(input);
    DeviceArray<float> output_f32(before.size());
    DeviceArray<std::uint16_t> output_f16(before.size());
    if (c.accumulate || c.stride != 0) {
        output_f32.upload(before);
        output_f16.upload(f16_of(before));
    }
    const bool narrow = c.output == cuda::ElementType::f16;
    cuda::ProductParams params{};
    params.weight = device_weight.matrix();
    params.input = halves ? static_cast<const void*>(device_f16.data()) : device_f32.data();
    params.input_type = c.input;
    params.output = narrow ? static_cast<void*>(output_f16.data()) : output_f32.data();
    params.output_type = c.output;
    params.output_stride = c.stride;
    params.n_tokens = c.n_tokens;
    params.n_groups = c.n_groups;
    params.arithmetic = c.arithmetic;
    params.accumulate = c.accumulate;
    DeviceStep step;
    cuda::Launch launch = step.launch();
    launch.n_multiprocessors = 1;  // so that small cases reach the largest tiles
    cuda::product(params, launch);
    step.wait();
    EXPECT_TRUE(output_f32.guard_intact() && output_f16.guard_intact()) << describe(c);
    EXPECT_TRUE(device_weight.guard_intact()) << describe(c);

    MatmulParams reference{};
    reference.weight = weight.matrix;
    reference.input = input.data();
    reference.output = before.data();
    reference.output_stride = c.stride;
    reference.n_tokens = c.n_tokens;
    reference.n_groups = c.n_groups;
    reference.accumulate = c.accumulate;
    cpu::matmul(reference, Workers(2));
    return {narrow ? f32_of(output_f16.download()) : output_f32.download(), before};
}

constexpr Limits kFast{.cosine_min = 0.9999, .relative_max = 5e-3};
constexpr Limits kSplit{.cosine_min = 0.9999999, .relative_max = 2e-5};
constexpr Limits kPrecise{.cosine_min = 0.9999999, .relative_max = 1e-5};

void expect_product(const Case& c, const Limits& limits) {
    const Results results = run(c, 7 * c.n_tokens + c.n_in + c.n_out);
    expect_close(results.actual, results.expected, limits, describe(c));
}

TEST(Product, FastMeetsTheCpuForEveryTypeInEveryTile) {
    PLIMSOLL_NEEDS_GPU();
    for (const WeightType type : kAllTypes)
        for (const std::uint32_t n_tokens : {1u, 19u, 50u, 150u})
            for (const std::uint32_t n_in : {256u, 768u, 1024u})
                expect_product({type, n_in, 150, n_tokens}, kFast);
}

TEST(Product, RowsNeedNotFillATile) {
    PLIMSOLL_NEEDS_GPU();
    for (const std::uint32_t n_tokens : {3u, 64u, 129u}) {
        expect_product({WeightType::q8_0, 32, 24, n_tokens}, kFast);
        expect_product({WeightType::q8_0, 96, 1, n_tokens}, kFast);
        expect_product({WeightType::q8_0, 352, 129, n_tokens}, kFast);
        expect_product({WeightType::f16, 8, 24, n_tokens}, kFast);
        expect_product({WeightType::f16, 136, 127, n_tokens}, kFast);
        expect_product({WeightType::bf16, 72, 40, n_tokens}, kFast);
        expect_product({WeightType::f32, 200, 40, n_tokens}, kFast);
    }
}

TEST(Product, GroupsReadTheirOwnSlice) {
    PLIMSOLL_NEEDS_GPU();
    for (const cuda::Arithmetic arithmetic : {cuda::Arithmetic::fast, cuda::Arithmetic::precise}) {
        Case c{WeightType::q8_0, 64, 4 * 40, 70, 4};
        c.arithmetic = arithmetic;
        if (arithmetic == cuda::Arithmetic::precise) c.input = cuda::ElementType::f32;
        expect_product(c, kFast);
        c.n_groups = 2;
        c.n_out = 2 * 150;
        expect_product(c, kFast);
    }
}

TEST(Product, AddsWithinAStride) {
    PLIMSOLL_NEEDS_GPU();
    for (const std::uint32_t stride : {0u, 80u, 83u})
        for (const std::uint32_t n_tokens : {2u, 80u}) {
            Case c{WeightType::q8_0, 128, 75, n_tokens};
            c.stride = stride;
            c.accumulate = true;
            expect_product(c, kFast);
            c.accumulate = false;
            c.stride = stride != 0 ? stride : 75;
            c.output = cuda::ElementType::f16;
            expect_product(c, kFast);
            c.arithmetic = cuda::Arithmetic::precise;
            c.input = cuda::ElementType::f32;
            expect_product(c, kFast);
        }
}

TEST(Product, HalfOutputsSaturate) {
    PLIMSOLL_NEEDS_GPU();
    Case c{WeightType::f16, 64, 16, 5};
    c.output = cuda::ElementType::f16;
    c.amplitude = 60000.0f;
    Results results = run(c, 5);
    std::uint32_t n_saturated = 0;
    for (float& value : results.expected) {
        n_saturated += std::fabs(value) > 65504.0f;
        value = std::fmin(std::fmax(value, -65504.0f), 65504.0f);
    }
    EXPECT_GT(n_saturated, 0u) << "the case does not reach the limit";
    expect_close(results.actual, results.expected, kFast, describe(c));
}

TEST(Product, FloatInputsOfHalfWeightsKeepTheirBits) {
    PLIMSOLL_NEEDS_GPU();
    for (const std::uint32_t n_tokens : {1u, 33u, 70u, 129u})
        for (const std::uint32_t n_in : {64u, 200u, 768u}) {
            Case c{WeightType::f16, n_in, 150, n_tokens};
            c.input = cuda::ElementType::f32;
            expect_product(c, kSplit);
        }
}

TEST(Product, PreciseMeetsTheCpuForEveryType) {
    PLIMSOLL_NEEDS_GPU();
    for (const WeightType type : kAllTypes)
        for (const std::uint32_t n_tokens : {1u, 9u, 70u}) {
            Case c{type, 768, 100, n_tokens};
            c.input = cuda::ElementType::f32;
            c.arithmetic = cuda::Arithmetic::precise;
            expect_product(c, kPrecise);
            c.n_in = info_of(type).block_elements == 256 ? 256 : 96;
            c.n_out = 24;
            expect_product(c, kPrecise);
        }
}

TEST(Product, PreciseBitsOfATokenDoNotDependOnTheChunk) {
    PLIMSOLL_NEEDS_GPU();
    Random random(11);
    const std::uint32_t n_in = 512, n_out = 70, n_tokens = 75;
    for (const WeightType type : kAllTypes) {
        const RandomWeight weight(random, type, n_in, n_out);
        const DeviceWeight device_weight(weight);
        const DeviceArray<float> input(extreme_values(random, n_in * n_tokens));
        DeviceArray<float> together(n_out * n_tokens);
        DeviceArray<float> apart(n_out * n_tokens);
        DeviceStep step;
        cuda::ProductParams params{};
        params.weight = device_weight.matrix();
        params.input_type = cuda::ElementType::f32;
        params.arithmetic = cuda::Arithmetic::precise;
        params.input = input.data();
        params.output = together.data();
        params.n_tokens = n_tokens;
        cuda::product(params, step.launch());
        const std::uint32_t parts[] = {1, 8, 9, 57};
        std::uint32_t token = 0;
        for (const std::uint32_t n : parts) {
            params.input = input.data() + token * n_in;
            params.output = apart.data() + token * n_out;
            params.n_tokens = n;
            cuda::product(params, step.launch());
            token += n;
        }
        step.wait();
        expect_equal(apart.download(), together.download(),
                     "type " + std::to_string(static_cast<int>(type)));
    }
}

TEST(Product, UsesTheHalfCopyWhereThereIsOne) {
    PLIMSOLL_NEEDS_GPU();
    Random random(13);
    const std::uint32_t n_in = 256, n_out = 40, n_tokens = 10;
    const RandomWeight weight(random, WeightType::q8_0, n_in, n_out);
    const RandomWeight other(random, WeightType::f16, n_in, n_out);
    const DeviceWeight device_weight(weight);
    const DeviceWeight device_other(other);
    const std::vector<std::uint16_t> halves = f16_of(uniform_values(random, n_in * n_tokens));
    const std::vector<float> wide = f32_of(halves);
    const DeviceArray<std::uint16_t> input(halves);
    DeviceArray<float> output(n_out * n_tokens);
    DeviceStep step;
    cuda::ProductParams params{};
    params.weight = device_weight.matrix();
    params.fp16_weight = device_other.matrix().data;
    params.input = input.data();
    params.output = output.data();
    params.n_tokens = n_tokens;
    cuda::product(params, step.launch());
    step.wait();
    std::vector<float> expected(n_out * n_tokens);
    MatmulParams reference{};
    reference.weight = other.matrix;
    reference.input = wide.data();
    reference.output = expected.data();
    reference.n_tokens = n_tokens;
    cpu::matmul(reference, Workers(2));
    expect_close(output.download(), expected, kFast, "the copy's product");
}

}  // namespace
}  // namespace plimsoll::kernels
