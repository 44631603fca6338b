#include <algorithm>

#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

/// A layer's attention at toy size: rows for every position, and compressed rows.
struct Layer {
    std::uint32_t n_heads = 5, head_dim = 80, rope_dim = 16, window = 20, n_tokens = 150, ratio = 4,
                  top_k = 7;
    KvFormat format;
    std::vector<float> q, rows, compressed_rows, sinks;
    std::vector<std::int32_t> selected, counts;
    std::vector<double> omega = std::vector<double>(8);
    Region compressed_region;
    KvRows compressed;

    Layer(Random& random, KvFormat kv_format)
        : format(kv_format),
          q(uniform_values(random, n_tokens * n_heads * head_dim, 4.0f)),
          rows(uniform_values(random, n_tokens * head_dim)),
          compressed_rows(uniform_values(random, 40 * head_dim)),
          sinks(uniform_values(random, n_heads, 2.0f)),
          selected(n_tokens * top_k),
          counts(n_tokens),
          compressed_region(kv_rows_bytes(format, 40, head_dim, rope_dim)),
          compressed{compressed_region.data(), format, 40, head_dim, rope_dim} {
        rope_frequencies({.base = 10000.0, .rope_dim = rope_dim}, omega);
        cpu::round_kv_rows({rows.data(), n_tokens, head_dim, rope_dim, format, CacheRounding::on},
                           Workers(1));
        cpu::round_kv_rows(
            {compressed_rows.data(), 40, head_dim, rope_dim, format, CacheRounding::on},
            Workers(1));
        cpu::store_kv_rows({compressed_rows.data(), compressed, 0, 40}, Workers(1));
        for (std::uint32_t t = 0; t < n_tokens; ++t) {
            const std::uint32_t visible = (t + 1) / ratio;
            std::vector<std::int32_t> ids;
            for (std::uint32_t n = 0; n < visible; ++n)
                if (ids.size() < top_k && (visible <= top_k || random.below(2) == 0))
                    ids.push_back(static_cast<std::int32_t>(n));
            counts[t] = static_cast<std::int32_t>(ids.size());
            std::copy(ids.begin(), ids.end(),
                      selected.begin() + static_cast<std::ptrdiff_t>(t * top_k));
        }
    }

    [[nodiscard]] std::vector<float> run(std::uint32_t chunk, bool sparse, std::uint32_t n_threads,
                                         bool in_place) const {
        const std::uint32_t capacity = window + 3;
        Region ring_region(kv_rows_bytes(format, capacity, head_dim, rope_dim));
        const KvRows ring{ring_region.data(), format, capacity, head_dim, rope_dim};
        std::vector<float> output = in_place ? q : std::vector<float>(q.size());
        const Workers workers(n_threads);
        const std::size_t width = std::size_t{n_heads} * head_dim;
        for (std::uint32_t first = 0; first < n_tokens; first += chunk) {
            const std::uint32_t n = std::min(chunk, n_tokens - first);
            AttentionParams params{};
            params.q = (in_place ? output.data() : q.data()) + first * width;
            params.chunk_rows = rows.data() + std::size_t{first} * head_dim;
            params.ring = ring;
            params.compressed = compressed;
            params.selected = sparse ? selected.data() + std::size_t{first} * top_k : nullptr;
            params.selected_count = sparse ? counts.data() + first : nullptr;
            params.sinks = sinks.data();
            params.output = output.data() + first * width;
            params.inverse_rope = {omega.data(), rope_dim};
            params.first_position = first;
            params.n_tokens = n;
            params.n_heads = n_heads;
            params.head_dim = head_dim;
            params.window = window;
            params.ratio = ratio;
            params.selected_stride = top_k;
            cpu::attention(params, workers);
            cpu::store_kv_rows({params.chunk_rows, ring, first, n}, workers);
        }
        return output;
    }

    [[nodiscard]] std::vector<double> reference(bool sparse) const {
        std::vector<double> out;
        for (std::uint32_t t = 0; t < n_tokens; ++t) {
            std::vector<const float*> visible;
            for (std::uint32_t p = t + 1 > window ? t + 1 - window : 0; p <= t; ++p)
                visible.push_back(&rows[p * head_dim]);
            const std::uint32_t n_compressed =
                sparse ? static_cast<std::uint32_t>(counts[t]) : (t + 1) / ratio;
            for (std::uint32_t i = 0; i < n_compressed; ++i)
                visible.push_back(
                    &compressed_rows[(sparse ? static_cast<std::uint32_t>(selected[t * top_k + i])
                                             : i) *
                                     head_dim]);
            for (std::uint32_t h = 0; h < n_heads; ++h) {
                std::vector<double> o(head_dim);
                double sum = std::exp(static_cast<double>(sinks[h]));
                for (const float* row : visible) {
                    double logit = 0;
                    for (std::uint32_t i = 0; i < head_dim; ++i)
                        logit += static_cast<double>(q[(t * n_heads + h) * head_dim + i]) *
                                 static_cast<double>(row[i]);
                    const double weight =
                        std::exp(logit / std::sqrt(static_cast<double>(head_dim)));
                    sum += weight;
                    for (std::uint32_t i = 0; i < head_dim; ++i)
                        o[i] += weight * static_cast<double>(row[i]);
                }
                for (double& value : o) value /= sum;
                reference_rope(&o[head_dim - rope_dim], omega, t, true);
                out.insert(out.end(), o.begin(), o.end());
            }
        }
        return out;
    }
};

TEST(Attention, AgreesWithTheReferenceDenseAndSparse) {
    Random random(91);
    for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
        const Layer layer(random, format);
        for (const bool sparse : {false, true})
            expect_near(layer.run(layer.n_tokens, sparse, 2, false), layer.reference(sparse), 2e-6);
    }
}

TEST(Attention, GivesATokenTheSameBitsInAnyChunkThreadCountAndInPlace) {
    Random random(92);
    for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
        const Layer layer(random, format);
        for (const bool sparse : {false, true}) {
            const std::vector<float> once = layer.run(layer.n_tokens, sparse, 1, false);
            for (const std::uint32_t chunk : {1u, 7u, 64u})
                expect_same(layer.run(chunk, sparse, 3, chunk == 7), once);
            expect_same(layer.run(layer.n_tokens, sparse, 8, true), once);
        }
    }
}

TEST(Attention, HugeLogitsNeitherOverflowNorLoseTheSink) {
    const std::vector<float> q(16, 1000.0f), row(16, 100.0f), negative(16, -1000.0f),
        sinks(1, 3.0f);
    std::vector<float> output(16);
    AttentionParams params{};
    params.chunk_rows = row.data();
    params.sinks = sinks.data();
    params.output = output.data();
    params.n_tokens = params.n_heads = 1;
    params.head_dim = 16;
    params.window = 4;
    params.q = q.data();
    cpu::attention(params, Workers(1));
    for (const float value : output) EXPECT_EQ(value, 100.0f);
    params.q = negative.data();
    cpu::attention(params, Workers(1));
    for (const float value : output) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace plimsoll::kernels
