#include <numeric>
#include <sstream>

#include "kernels/cuda/decode.hpp"
#include "kernels/half.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct CompressorCase {
    std::uint32_t ratio = 4;
    std::uint32_t dim = 80;
    std::uint32_t rope_dim = 16;
    bool for_indexer = false;
    KvFormat format = KvFormat::f32;
    CacheRounding rounding = CacheRounding::off;
    WeightType ape_type = WeightType::f16;
    std::uint32_t n_tokens = 391;
    std::uint64_t first_position = 0;

    [[nodiscard]] std::uint32_t width() const { return compressor_lanes(ratio) * dim; }
    [[nodiscard]] std::uint32_t rows() const {
        return static_cast<std::uint32_t>((first_position + n_tokens) / ratio + 1);
    }
    [[nodiscard]] std::uint64_t region_bytes() const {
        return for_indexer ? indexer_rows_bytes(format, rows(), dim)
                           : kv_rows_bytes(format, rows(), dim, rope_dim);
    }
    [[nodiscard]] std::string describe() const {
        std::ostringstream out;
        out << "ratio " << ratio << ", dim " << dim << ", rope_dim " << rope_dim << ", indexer "
            << for_indexer << ", packed " << (format == KvFormat::packed) << ", rounding "
            << (rounding == CacheRounding::on) << ", ape " << static_cast<int>(ape_type)
            << ", tokens " << n_tokens << " from " << first_position;
        return out.str();
    }
};

/// Inputs of a case, and what both sides make of them.
struct Inputs {
    const CompressorCase& shape;
    std::vector<float> g_kv, g_sc, norm;
    RandomWeight ape;
    std::vector<double> frequencies;

    Inputs(Random& random, const CompressorCase& c)
        : shape(c),
          g_kv(uniform_values(random, std::size_t{c.n_tokens} * c.width())),
          g_sc(uniform_values(random, std::size_t{c.n_tokens} * c.width(), 3.0f)),
          norm(uniform_values(random, c.dim)),
          ape(random, c.ape_type, c.width(), c.ratio),
          frequencies(c.rope_dim / 2) {
        rope_frequencies({.base = 160000.0,
                          .rope_dim = c.rope_dim,
                          .yarn = true,
                          .original_context_tokens = 1024},
                         frequencies);
    }

    [[nodiscard]] CompressorParams params(void* region, void* state) const {
        CompressorParams params{};
        params.state = state;
        if (shape.for_indexer)
            params.indexer_rows = {region, shape.format, shape.rows(), shape.dim};
        else
            params.kv_rows = {region, shape.format, shape.rows(), shape.dim, shape.rope_dim};
        params.rope = {frequencies.data(), shape.rope_dim};
        params.ratio = shape.ratio;
        params.dim = shape.dim;
        params.rms_epsilon = 1e-6f;
        params.rounding = shape.rounding;
        return params;
    }
};

/// Rows finished, and the state that is left.
struct Outcome {
    std::vector<float> rows, state;
};

std::vector<float> load_rows(const CompressorCase& shape, void* region) {
    const auto first = static_cast<std::uint32_t>(shape.first_position / shape.ratio);
    const auto end =
        static_cast<std::uint32_t>((shape.first_position + shape.n_tokens) / shape.ratio);
    std::vector<float> rows(std::size_t{end - first} * shape.dim);
    if (shape.for_indexer)
        cpu::load_indexer_rows(
            {{region, shape.format, shape.rows(), shape.dim}, rows.data(), first, end - first},
            Workers(1));
    else
        cpu::load_kv_rows({{region, shape.format, shape.rows(), shape.dim, shape.rope_dim},
                           rows.data(),
                           first,
                           end - first},
                          Workers(1));
    return rows;
}

Outcome run_cpu(const Inputs& inputs) {
    const CompressorCase& shape = inputs.shape;
    Region region(shape.region_bytes());
    Outcome outcome;
    outcome.state.resize(compressor_state_bytes(shape.ratio, shape.width()) / sizeof(float));
    compressor_reset(outcome.state.data(), shape.ratio, shape.width());
    CompressorParams params = inputs.params(region.data(), outcome.state.data());
    params.g_kv = inputs.g_kv.data();
    params.g_sc = inputs.g_sc.data();
    params.ape = inputs.ape.matrix;
    params.norm_weight = inputs.norm.data();
    params.first_position = shape.first_position;
    params.n_tokens = shape.n_tokens;
    cpu::compress(params, Workers(1));
    outcome.rows = load_rows(shape, region.data());
    return outcome;
}

/// The tokens in chunks of the sizes of `chunks` in turn; size 1 with `decodes` is a decode step.
Outcome run_gpu(const Inputs& inputs, const std::vector<std::uint32_t>& chunks, bool decodes) {
    const CompressorCase& shape = inputs.shape;
    DeviceStep step;
    const DeviceBytes region(shape.region_bytes());
    const DeviceArray<float> state(compressor_state_bytes(shape.ratio, shape.width()) /
                                   sizeof(float));
    const DeviceArray<float> g_kv(inputs.g_kv), g_sc(inputs.g_sc), norm(inputs.norm);
    const DeviceWeight ape(inputs.ape);
    const DeviceArray<float> kv(std::vector<float>(shape.dim, 1.0f));
    const DeviceBytes ring(kv_rows_bytes(KvFormat::f32, 3, shape.dim, shape.rope_dim));
    cuda::compressor_reset(state.data(), shape.ratio, shape.width(), step.launch());
    CompressorParams params = inputs.params(region.data(), state.data());
    params.ape = ape.matrix();
    params.norm_weight = norm.data();
    std::size_t next = 0;
    for (std::uint32_t first = 0; first < shape.n_tokens; first += params.n_tokens) {
        params.n_tokens = std::min(chunks[next++ % chunks.size()], shape.n_tokens - first);
        params.g_kv = g_kv.data() + std::size_t{first} * shape.width();
        params.g_sc = g_sc.data() + std::size_t{first} * shape.width();
        const cuda::Launch launch = step.launch(shape.first_position + first);
        if (!decodes || params.n_tokens != 1) {
            cuda::compress(params, launch);
            continue;
        }
        cuda::DecodeRowsParams token{};
        token.kv = kv.data();
        token.kv_norm = norm.data();
        token.ring = {ring.data(), KvFormat::f32, 3, shape.dim, shape.rope_dim};
        token.rope = params.rope;
        token.rounding = shape.rounding;
        token.rms_epsilon = 1e-6f;
        (shape.for_indexer ? token.index_rows : token.rows) = params;
        cuda::decode_products_and_rows({}, 0.0f, token, launch);
    }
    step.wait();
    EXPECT_TRUE(region.guard_intact() && state.guard_intact()) << shape.describe();
    Region host(shape.region_bytes());
    region.download(host.data(), shape.region_bytes());
    return {load_rows(shape, host.data()), state.download()};
}

/// Without rounding rows agree to float32; with it a value between two codes may go either way.
Limits row_limits(const CompressorCase& shape) {
    if (shape.rounding == CacheRounding::off) return {.relative_max = 1e-5};
    return {.cosine_min = shape.for_indexer ? 0.999 : 0.9999};
}

void expect_outcome(const Outcome& actual, const Outcome& expected, const CompressorCase& shape) {
    expect_close(actual.rows, expected.rows, row_limits(shape), shape.describe());
    // Copies, and scores with their bias added.
    expect_close(actual.state, expected.state, {.error_max = 1e-6}, shape.describe() + ", state");
}

const CompressorCase kCases[] = {
    {},
    {.format = KvFormat::packed, .rounding = CacheRounding::on},
    {.dim = 64, .for_indexer = true, .ape_type = WeightType::f32},
    {.dim = 128, .for_indexer = true, .format = KvFormat::packed, .rounding = CacheRounding::on},
    {.dim = 512,
     .rope_dim = 64,
     .format = KvFormat::packed,
     .rounding = CacheRounding::on,
     .n_tokens = 21},
    {.ratio = 128, .ape_type = WeightType::bf16},
    {.ratio = 128, .dim = 64, .format = KvFormat::packed, .rounding = CacheRounding::on},
};

TEST(GpuCompressor, AgreesWithTheCpuInOneChunk) {
    PLIMSOLL_NEEDS_GPU();
    Random random(511);
    for (const CompressorCase& shape : kCases) {
        const Inputs inputs(random, shape);
        expect_outcome(run_gpu(inputs, {shape.n_tokens}, false), run_cpu(inputs), shape);
    }
}

TEST(GpuCompressor, StartsAtAnyPositionOfAWindow) {
    PLIMSOLL_NEEDS_GPU();
    Random random(512);
    for (const std::uint64_t position : {std::uint64_t{1}, std::uint64_t{1022}})
        for (const std::uint32_t n_tokens : {1u, 2u, 3u, 5u, 130u})
            for (const std::uint32_t ratio : {4u, 128u}) {
                const CompressorCase shape{
                    .ratio = ratio, .dim = 32, .n_tokens = n_tokens, .first_position = position};
                const Inputs inputs(random, shape);
                expect_outcome(run_gpu(inputs, {n_tokens}, false), run_cpu(inputs), shape);
            }
}

TEST(GpuCompressor, ChunksAndDecodeStepsGiveTheSameBits) {
    PLIMSOLL_NEEDS_GPU();
    Random random(513);
    for (CompressorCase shape : kCases) {
        shape.n_tokens = std::min(shape.n_tokens, 140u);
        const Inputs inputs(random, shape);
        const Outcome once = run_gpu(inputs, {shape.n_tokens}, false);
        const std::vector<std::uint32_t> sizes[] = {{1}, {1, 2, 3, 7, 5, 1, 1}, {30, 1, 1, 1, 61}};
        for (const auto& chunks : sizes)
            for (const bool decodes : {false, true}) {
                const Outcome parts = run_gpu(inputs, chunks, decodes);
                expect_equal(parts.rows, once.rows, shape.describe());
                expect_equal(parts.state, once.state, shape.describe() + ", state");
            }
    }
}

TEST(GpuDecodeRows, OwnRowIsNormedTurnedRoundedAndStored) {
    PLIMSOLL_NEEDS_GPU();
    Random random(514);
    DeviceStep step;
    struct Shape {
        std::uint32_t head_dim, rope_dim;
    };
    for (const auto& [head_dim, rope_dim] : {Shape{80, 16}, Shape{512, 64}})
        for (const KvFormat format : {KvFormat::f32, KvFormat::packed})
            for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{70001}}) {
                constexpr std::uint32_t kCapacity = 5;
                const CacheRounding rounding =
                    format == KvFormat::packed ? CacheRounding::on : CacheRounding::off;
                const std::string what = "head_dim " + std::to_string(head_dim) + ", position " +
                                         std::to_string(position);
                std::vector<float> row = uniform_values(random, head_dim, 3.0f);
                const std::vector<float> norm = uniform_values(random, head_dim);
                std::vector<double> frequencies(rope_dim / 2);
                rope_frequencies({.base = 10000.0, .rope_dim = rope_dim}, frequencies);
                const DeviceArray<float> kv(row), kv_norm(norm);
                const std::uint64_t size_bytes =
                    kv_rows_bytes(format, kCapacity, head_dim, rope_dim);
                const DeviceBytes ring(size_bytes);
                cuda::DecodeRowsParams params{};
                params.kv = kv.data();
                params.kv_norm = kv_norm.data();
                params.ring = {ring.data(), format, kCapacity, head_dim, rope_dim};
                params.rope = {frequencies.data(), rope_dim};
                params.rounding = rounding;
                params.rms_epsilon = 1e-6f;
                cuda::decode_products_and_rows({}, 0.0f, params, step.launch(position));
                step.wait();
                EXPECT_TRUE(ring.guard_intact()) << what;
                Region host(size_bytes);
                ring.download(host.data(), size_bytes);
                std::vector<float> actual(head_dim);
                cpu::load_kv_rows({{host.data(), format, kCapacity, head_dim, rope_dim},
                                   actual.data(),
                                   position,
                                   1},
                                  Workers(1));
                cpu::rms_norm({row.data(), norm.data(), row.data(), 1, head_dim, 1e-6f},
                              Workers(1));
                cpu::rope({row.data(), params.rope, position, 1, 1, head_dim}, Workers(1));
                cpu::round_kv_rows({row.data(), 1, head_dim, rope_dim, format, rounding},
                                   Workers(1));
                const Limits limits = rounding == CacheRounding::on ? Limits{.cosine_min = 0.9999}
                                                                    : Limits{.relative_max = 1e-5};
                expect_close(actual, row, limits, what);
            }
}

}  // namespace
}  // namespace plimsoll::kernels
