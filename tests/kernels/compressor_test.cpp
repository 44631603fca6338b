#include "kernels/cache_rounding.hpp"
#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

constexpr std::uint32_t kTokens = 391;
constexpr std::uint32_t kRows = 128;

/// A compressor with inputs for kTokens tokens.
struct Compressor {
    std::uint32_t ratio, dim, width, rope_dim = 16;
    bool for_indexer;
    std::vector<float> g_kv, g_sc, norm;
    RandomWeight ape;
    std::vector<double> omega = std::vector<double>(8);

    Compressor(Random& random, std::uint32_t r, std::uint32_t d, bool indexer)
        : ratio(r),
          dim(d),
          width(compressor_lanes(r) * d),
          for_indexer(indexer),
          g_kv(uniform_values(random, kTokens * width)),
          g_sc(uniform_values(random, kTokens * width, 3.0f)),
          norm(uniform_values(random, d)),
          ape(random, WeightType::f16, width, r) {
        rope_frequencies(
            {.base = 160000.0, .rope_dim = rope_dim, .yarn = true, .original_context_tokens = 1024},
            omega);
    }

    struct Outcome {
        std::vector<float> rows;
        std::vector<std::byte> state;
    };

    /// All rows made when the tokens come in chunks of `chunk`.
    [[nodiscard]] Outcome run(std::uint32_t chunk, KvFormat format, CacheRounding rounding,
                              std::uint32_t n_threads) const {
        Outcome out;
        out.state.resize(compressor_state_bytes(ratio, width));
        compressor_reset(out.state.data(), ratio, width);
        Region region(for_indexer ? indexer_rows_bytes(format, kRows, dim)
                                  : kv_rows_bytes(format, kRows, dim, rope_dim));
        CompressorParams params{};
        params.ape = ape.matrix;
        params.norm_weight = norm.data();
        params.state = out.state.data();
        if (for_indexer)
            params.indexer_rows = {region.data(), format, kRows, dim};
        else
            params.kv_rows = {region.data(), format, kRows, dim, rope_dim};
        params.rope = {omega.data(), rope_dim};
        params.ratio = ratio;
        params.dim = dim;
        params.rms_epsilon = 1e-6f;
        params.rounding = rounding;
        const Workers workers(n_threads);
        for (std::uint32_t first = 0; first < kTokens; first += chunk) {
            params.g_kv = g_kv.data() + std::size_t{first} * width;
            params.g_sc = g_sc.data() + std::size_t{first} * width;
            params.first_position = first;
            params.n_tokens = std::min(chunk, kTokens - first);
            cpu::compress(params, workers);
        }
        const std::uint32_t n_rows = kTokens / ratio;
        out.rows.resize(std::size_t{n_rows} * dim);
        if (for_indexer)
            cpu::load_indexer_rows({params.indexer_rows, out.rows.data(), 0, n_rows}, workers);
        else
            cpu::load_kv_rows({params.kv_rows, out.rows.data(), 0, n_rows}, workers);
        return out;
    }

    /// One row before rounding, from the definition.
    [[nodiscard]] std::vector<double> reference_row(std::size_t n) const {
        std::vector<double> pooled(dim);
        for (std::size_t j = 0; j < dim; ++j) {
            double sum = 0, weighted = 0;
            const auto add = [&](std::size_t token, std::size_t column) {
                const double logit = static_cast<double>(g_sc[token * width + column]) +
                                     ape.values[token % ratio * width + column];
                sum += std::exp(logit);
                weighted += std::exp(logit) * static_cast<double>(g_kv[token * width + column]);
            };
            if (ratio == 4) {
                for (std::size_t i = 0; n > 0 && i < 4; ++i) add(4 * (n - 1) + i, j);
                for (std::size_t i = 0; i < 4; ++i) add(4 * n + i, dim + j);
            } else {
                for (std::size_t i = 0; i < ratio; ++i) add(ratio * n + i, j);
            }
            pooled[j] = weighted / sum;
        }
        std::vector<double> row = reference_rms(pooled, norm.data(), 1e-6);
        reference_rope(&row[dim - rope_dim], omega, static_cast<double>(n * ratio), false);
        return row;
    }
};

TEST(Compressor, RowsAgreeWithTheReferenceForBothRatios) {
    Random random(71);
    for (const std::uint32_t ratio : {4u, 128u}) {
        const Compressor compressor(random, ratio, 80, false);
        const auto outcome = compressor.run(kTokens, KvFormat::f32, CacheRounding::off, 2);
        for (std::size_t n = 0; n < kTokens / ratio; ++n)
            expect_near({outcome.rows.begin() + static_cast<std::ptrdiff_t>(n * 80),
                         outcome.rows.begin() + static_cast<std::ptrdiff_t>((n + 1) * 80)},
                        compressor.reference_row(n), 5e-6);
    }
}

TEST(Compressor, ChunksOfAnySizeGiveTheSameRowsAndState) {
    Random random(72);
    for (const std::uint32_t ratio : {4u, 128u})
        for (const bool for_indexer : {false, true}) {
            const Compressor compressor(random, ratio, 64, for_indexer);
            for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
                const auto once = compressor.run(kTokens, format, CacheRounding::on, 3);
                for (const std::uint32_t chunk : {1u, 2u, 3u, 5u, 64u, 130u}) {
                    const auto chunked = compressor.run(chunk, format, CacheRounding::on, 2);
                    expect_same(chunked.rows, once.rows);
                    EXPECT_TRUE(chunked.state == once.state)
                        << "ratio " << ratio << ", chunk " << chunk;
                }
            }
        }
}

TEST(Compressor, PackedRowsHoldTheRoundedValues) {
    Random random(73);
    const Compressor compressor(random, 4, 64, true);
    const auto plain = compressor.run(kTokens, KvFormat::f32, CacheRounding::off, 1);
    std::vector<float> expected = plain.rows;
    for (std::size_t at = 0; at < expected.size(); at += 64) {
        hadamard(&expected[at], 64);
        fp4_round(&expected[at], 64);
    }
    expect_same(compressor.run(kTokens, KvFormat::packed, CacheRounding::on, 1).rows, expected);
    expect_same(compressor.run(kTokens, KvFormat::f32, CacheRounding::on, 1).rows, expected);
}

TEST(Compressor, StateHasThePublishedSize) {
    EXPECT_EQ(compressor_state_bytes(4, 1024), 65536u);
    EXPECT_EQ(compressor_state_bytes(4, 256), 16384u);
    EXPECT_EQ(compressor_state_bytes(128, 512), 524288u);
}

}  // namespace
}  // namespace plimsoll::kernels
