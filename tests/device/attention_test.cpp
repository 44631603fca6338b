#include <algorithm>
#include <sstream>

#include "kernels/cuda/decode.hpp"
#include "kernels/half.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

constexpr float kEpsilon = 1e-6f;

struct AttentionCase {
    std::uint32_t n_heads = 4;
    std::uint32_t head_dim = 64;
    std::uint32_t rope_dim = 16;
    std::uint32_t window = 20;
    std::uint32_t ring_capacity = 23;
    std::uint32_t ratio = 4;
    std::uint32_t top_k = 0;  // 0: all compressed rows
    std::uint32_t n_tokens = 9;
    std::uint64_t first_position = 0;
    KvFormat format = KvFormat::packed;

    [[nodiscard]] std::uint64_t end() const { return first_position + n_tokens; }
    [[nodiscard]] std::uint32_t compressed_rows() const {
        return ratio == 0 ? 0 : static_cast<std::uint32_t>(end() / ratio + 1);
    }
    [[nodiscard]] std::uint32_t width() const { return n_heads * head_dim; }
    [[nodiscard]] std::string describe() const {
        std::ostringstream out;
        out << "heads " << n_heads << " x " << head_dim << ", rope_dim " << rope_dim << ", window "
            << window << ", ring " << ring_capacity << ", ratio " << ratio << ", top_k " << top_k
            << ", tokens " << n_tokens << " from " << first_position << ", packed "
            << (format == KvFormat::packed);
        return out.str();
    }
};

/// Host data of a case: queries as a product leaves them, rounded rows of every position, regions.
struct Inputs {
    AttentionCase shape;
    std::vector<float> q, rows, sinks;  // q: float16 values
    std::vector<double> frequencies;
    Region ring_bytes, compressed_bytes;
    std::vector<std::int32_t> selected, counts;

    Inputs(Random& random, const AttentionCase& c)
        : shape(c),
          q(uniform_values(random, std::size_t{c.n_tokens} * c.width(), 2.0f)),
          rows(uniform_values(random, c.end() * c.head_dim, 3.0f)),
          sinks(uniform_values(random, c.n_heads, 2.0f)),
          frequencies(c.rope_dim / 2),
          ring_bytes(kv_rows_bytes(c.format, c.ring_capacity, c.head_dim, c.rope_dim)),
          compressed_bytes(kv_rows_bytes(c.format, c.compressed_rows(), c.head_dim, c.rope_dim)),
          selected(std::size_t{c.n_tokens} * c.top_k, -1),
          counts(c.n_tokens) {
        q = f32_of(f16_of(q));
        rope_frequencies({.base = 10000.0, .rope_dim = c.rope_dim}, frequencies);
        round(rows);
        fill_compressed(random);
        fill_selected(random);
    }

    void round(std::vector<float>& values) const {
        cpu::round_kv_rows(
            {values.data(), static_cast<std::uint32_t>(values.size() / shape.head_dim),
             shape.head_dim, shape.rope_dim, shape.format, CacheRounding::on},
            Workers(1));
    }
    void fill_compressed(Random& random) {
        std::vector<float> values =
            uniform_values(random, std::size_t{shape.compressed_rows()} * shape.head_dim, 3.0f);
        round(values);
        if (shape.ratio != 0)
            cpu::store_kv_rows(
                {values.data(), compressed(compressed_bytes.data()), 0, shape.compressed_rows()},
                Workers(1));
    }
    void fill_selected(Random& random) {
        for (std::uint32_t t = 0; t < shape.n_tokens && shape.top_k != 0; ++t) {
            const auto visible =
                static_cast<std::int32_t>((shape.first_position + t + 1) / shape.ratio);
            const auto top_k = static_cast<std::int32_t>(shape.top_k);
            for (std::int32_t n = 0; n < visible && counts[t] < top_k; ++n)
                if (visible <= top_k || visible - n <= top_k - counts[t] || random.below(3) == 0)
                    selected[std::size_t{t} * shape.top_k + counts[t]++] = n;
        }
    }
    /// The ring before the chunk, or with the positions of the chunk too.
    void fill_ring(std::uint64_t end_position) {
        std::memset(ring_bytes.data(), 0xFF, ring_size_bytes());
        cpu::store_kv_rows(
            {rows.data(), ring(ring_bytes.data()), 0, static_cast<std::uint32_t>(end_position)},
            Workers(1));
    }
    [[nodiscard]] std::uint64_t ring_size_bytes() const {
        return kv_rows_bytes(shape.format, shape.ring_capacity, shape.head_dim, shape.rope_dim);
    }
    [[nodiscard]] KvRows ring(void* base) const {
        return {base, shape.format, shape.ring_capacity, shape.head_dim, shape.rope_dim};
    }
    [[nodiscard]] KvRows compressed(void* base) const {
        return {base, shape.format, shape.compressed_rows(), shape.head_dim, shape.rope_dim};
    }
    [[nodiscard]] RopeTable rope() const { return {frequencies.data(), shape.rope_dim}; }

    /// What all paths share; pointers are filled in by the caller.
    [[nodiscard]] AttentionParams params() const {
        AttentionParams params{};
        params.inverse_rope = rope();
        params.first_position = shape.first_position;
        params.n_tokens = shape.n_tokens;
        params.n_heads = shape.n_heads;
        params.head_dim = shape.head_dim;
        params.window = shape.window;
        params.ratio = shape.ratio;
        params.selected_stride = shape.top_k;
        return params;
    }
    /// Queries normed per head and rotated.
    [[nodiscard]] std::vector<float> prepared_queries() const {
        std::vector<float> prepared(q.size());
        cpu::rms_norm({q.data(), nullptr, prepared.data(),
                       std::uint64_t{shape.n_tokens} * shape.n_heads, shape.head_dim, kEpsilon},
                      Workers(1));
        cpu::rope({prepared.data(), rope(), shape.first_position, shape.n_tokens, shape.n_heads,
                   shape.head_dim},
                  Workers(1));
        return prepared;
    }
    /// Of the CPU, the ring as fill_ring left it.
    [[nodiscard]] std::vector<float> expected() {
        const std::vector<float> prepared = prepared_queries();
        std::vector<float> output(q.size());
        AttentionParams params = this->params();
        params.q = prepared.data();
        params.chunk_rows = rows.data() + shape.first_position * shape.head_dim;
        params.ring = ring(ring_bytes.data());
        if (shape.ratio != 0) params.compressed = compressed(compressed_bytes.data());
        if (shape.top_k != 0) {
            params.selected = selected.data();
            params.selected_count = counts.data();
        }
        params.sinks = sinks.data();
        params.output = output.data();
        cpu::attention(params, Workers(1));
        return output;
    }
};

/// The same on the device.
struct DeviceInputs {
    DeviceArray<float> rows, sinks;
    DeviceBytes ring, compressed;
    DeviceArray<std::int32_t> selected, counts;

    explicit DeviceInputs(Inputs& inputs)
        : rows(inputs.rows),
          sinks(inputs.sinks),
          ring(inputs.ring_size_bytes()),
          compressed(kv_rows_bytes(inputs.shape.format, inputs.shape.compressed_rows(),
                                   inputs.shape.head_dim, inputs.shape.rope_dim)),
          selected(inputs.selected),
          counts(inputs.counts) {
        ring.upload(inputs.ring_bytes.data(), ring.size_bytes());
        compressed.upload(inputs.compressed_bytes.data(), compressed.size_bytes());
    }

    /// Of the tokens from `token` on.
    [[nodiscard]] AttentionParams params(const Inputs& inputs, std::uint32_t token,
                                         std::uint32_t n_tokens) const {
        AttentionParams params = inputs.params();
        params.first_position = ~std::uint64_t{0};  // the launch's state says it
        params.n_tokens = n_tokens;
        params.chunk_rows =
            rows.data() + (inputs.shape.first_position + token) * inputs.shape.head_dim;
        params.ring = inputs.ring(ring.data());
        if (inputs.shape.ratio != 0) params.compressed = inputs.compressed(compressed.data());
        if (inputs.shape.top_k != 0) {
            params.selected = selected.data() + std::size_t{token} * inputs.shape.top_k;
            params.selected_count = counts.data() + token;
        }
        params.sinks = sinks.data();
        return params;
    }
};

const AttentionCase kCases[] = {
    {},
    {.n_tokens = 70},
    {.n_tokens = 33, .first_position = 1, .format = KvFormat::f32},
    {.n_heads = 5, .head_dim = 80, .top_k = 7, .n_tokens = 40, .first_position = 50},
    {.n_heads = 20,
     .head_dim = 128,
     .rope_dim = 64,
     .window = 128,
     .ring_capacity = 128,
     .ratio = 128,
     .n_tokens = 3,
     .first_position = 1000},
    {.n_heads = 70,
     .head_dim = 128,
     .rope_dim = 32,
     .ring_capacity = 19,
     .top_k = 33,
     .n_tokens = 2,
     .first_position = 300},
    {.n_heads = 3,
     .head_dim = 256,
     .rope_dim = 32,
     .ratio = 0,
     .n_tokens = 4,
     .first_position = 45},
    {.n_heads = 64,
     .head_dim = 512,
     .rope_dim = 64,
     .window = 128,
     .ring_capacity = 128,
     .top_k = 150,
     .n_tokens = 2,
     .first_position = 700},
    {.n_heads = 33,
     .head_dim = 512,
     .rope_dim = 64,
     .window = 128,
     .ring_capacity = 130,
     .n_tokens = 2,
     .first_position = 255,
     .format = KvFormat::f32},
};

std::vector<float> run_precise(const Inputs& inputs, const DeviceInputs& device, DeviceStep& step,
                               std::uint32_t token, std::uint32_t n_tokens) {
    const std::vector<float> prepared = inputs.prepared_queries();
    const std::size_t first = std::size_t{token} * inputs.shape.width();
    const std::size_t n = std::size_t{n_tokens} * inputs.shape.width();
    const DeviceArray<float> q(
        std::vector<float>(prepared.begin() + static_cast<std::ptrdiff_t>(first),
                           prepared.begin() + static_cast<std::ptrdiff_t>(first + n)));
    AttentionParams params = device.params(inputs, token, n_tokens);
    params.q = q.data();
    params.output = q.data();
    cuda::attention_precise(params, step.launch(inputs.shape.first_position + token));
    step.wait();
    EXPECT_TRUE(q.guard_intact()) << inputs.shape.describe();
    return q.download();
}

TEST(GpuAttentionPrecise, AgreesWithTheCpuToFloat32) {
    PLIMSOLL_NEEDS_GPU();
    Random random(521);
    DeviceStep step;
    for (const AttentionCase& shape : kCases) {
        Inputs inputs(random, shape);
        inputs.fill_ring(shape.first_position);
        const DeviceInputs device(inputs);
        expect_close(run_precise(inputs, device, step, 0, shape.n_tokens), inputs.expected(),
                     {.relative_max = 1e-5}, shape.describe());
    }
}

TEST(GpuAttentionPrecise, GivesATokenTheSameBitsInAnyChunk) {
    PLIMSOLL_NEEDS_GPU();
    Random random(522);
    DeviceStep step;
    const AttentionCase shape{.n_heads = 5, .head_dim = 80, .n_tokens = 40, .first_position = 50};
    Inputs inputs(random, shape);
    inputs.fill_ring(shape.first_position);
    const std::vector<float> once =
        run_precise(inputs, DeviceInputs(inputs), step, 0, shape.n_tokens);
    for (const std::uint32_t token : {0u, 7u, 39u}) {
        inputs.fill_ring(shape.first_position + token);
        const std::vector<float> alone = run_precise(inputs, DeviceInputs(inputs), step, token, 1);
        const auto from = once.begin() + static_cast<std::ptrdiff_t>(token * shape.width());
        expect_equal(alone, std::vector<float>(from, from + shape.width()),
                     "token " + std::to_string(token));
    }
}

TEST(GpuAttentionFast, AgreesWithTheCpuToFloat16) {
    PLIMSOLL_NEEDS_GPU();
    Random random(523);
    DeviceStep step;
    for (const AttentionCase& shape : kCases) {
        Inputs inputs(random, shape);
        inputs.fill_ring(shape.first_position);
        const DeviceInputs device(inputs);
        const DeviceArray<std::uint16_t> q(f16_of(inputs.q)), output(inputs.q.size());
        cuda::attention_fast({device.params(inputs, 0, shape.n_tokens), q.data(), output.data(),
                              inputs.rope(), kEpsilon},
                             step.launch(shape.first_position));
        step.wait();
        EXPECT_TRUE(output.guard_intact()) << shape.describe();
        expect_close(f32_of(output.download()), inputs.expected(),
                     {.cosine_min = 0.99998, .relative_max = 1e-2}, shape.describe());
    }
}

/// One token, whose own row is in the ring; `rows_max` beyond what is there, as in a graph.
void expect_decodes(Random& random, AttentionCase shape, std::uint32_t rows_max, DeviceStep& step) {
    shape.first_position += shape.n_tokens - 1;
    shape.n_tokens = 1;
    shape.ring_capacity = std::max(shape.ring_capacity, shape.window);
    Inputs inputs(random, shape);
    inputs.fill_ring(shape.end());
    const DeviceInputs device(inputs);
    const DeviceArray<float> q(inputs.q), output(inputs.q.size());
    const DeviceBytes partials(
        cuda::decode_attention_partials_bytes(shape.n_heads, shape.head_dim, rows_max));
    const AttentionParams from = device.params(inputs, 0, 1);
    cuda::DecodeAttentionParams params{};
    params.q = q.data();
    params.ring = from.ring;
    params.compressed = from.compressed;
    params.selected = from.selected;
    params.selected_count = from.selected_count;
    params.sinks = from.sinks;
    params.output = output.data();
    params.partials = static_cast<float*>(partials.data());
    params.rope = inputs.rope();
    params.n_heads = shape.n_heads;
    params.head_dim = shape.head_dim;
    params.window = shape.window;
    params.ratio = shape.ratio;
    params.rows_max = rows_max;
    params.rms_epsilon = kEpsilon;
    cuda::decode_attention(params, step.launch(shape.first_position));
    step.wait();
    const std::string what = shape.describe() + ", rows_max " + std::to_string(rows_max);
    EXPECT_TRUE(output.guard_intact() && partials.guard_intact()) << what;
    expect_close(output.download(), inputs.expected(),
                 {.cosine_min = 0.99998, .relative_max = 1e-2}, what);
}

TEST(GpuDecodeAttention, AgreesWithTheCpuToFloat16) {
    PLIMSOLL_NEEDS_GPU();
    Random random(524);
    // One step for all: launches of different grids share its counters.
    DeviceStep step;
    for (const AttentionCase& shape : kCases)
        for (const std::uint32_t spare : {0u, 5000u}) {
            if (shape.top_k != 0 && spare != 0) continue;  // as many as are selected at most
            const std::uint32_t compressed =
                shape.top_k != 0 ? shape.top_k : shape.compressed_rows();
            expect_decodes(random, shape, shape.window + compressed + spare, step);
        }
}

TEST(GpuDecodeAttention, TakesMoreRowsThanSplitsHoldTiles) {
    PLIMSOLL_NEEDS_GPU();
    Random random(525);
    DeviceStep step;
    expect_decodes(random, {.n_heads = 4, .head_dim = 64, .first_position = 6000}, 1600, step);
}

}  // namespace
}  // namespace plimsoll::kernels
