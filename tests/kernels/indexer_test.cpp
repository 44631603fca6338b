#include <algorithm>
#include <numeric>

#include "kernels/cache_rounding.hpp"
#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Selection {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> counts;
};

/// Rows, queries and head weights of a small indexer. Few distinct values, so that scores tie
/// often.
struct Indexer {
    std::uint32_t n_heads = 8, dim = 32, n_rows, top_k, ratio = 4;
    std::vector<float> rows;
    Region region;
    IndexerRows view;

    Indexer(Random& random, std::uint32_t count, std::uint32_t k, KvFormat format)
        : n_rows(count),
          top_k(k),
          rows(std::size_t{count} * dim),
          region(indexer_rows_bytes(format, count, dim)),
          view{region.data(), format, count, dim} {
        for (float& value : rows) value = static_cast<float>(random.below(3)) - 1.0f;
        cpu::store_indexer_rows({rows.data(), view, 0, n_rows}, Workers(1));
    }

    [[nodiscard]] Selection select(const std::vector<float>& queries,
                                   const std::vector<float>& weights, std::uint64_t first_position,
                                   std::uint32_t first, std::uint32_t n_tokens,
                                   std::uint32_t n_threads) const {
        Selection out{std::vector<std::int32_t>(std::size_t{n_tokens} * top_k, -1),
                      std::vector<std::int32_t>(n_tokens)};
        std::vector<std::byte> workspace(indexer_select_workspace_bytes(n_tokens, top_k));
        cpu::indexer_select(
            {queries.data() + std::size_t{first} * n_heads * dim,
             weights.data() + std::size_t{first} * n_heads, view, out.ids.data(), out.counts.data(),
             workspace.data(), first_position + first, n_tokens, n_heads, dim, top_k, ratio},
            Workers(n_threads));
        return out;
    }

    [[nodiscard]] std::vector<std::int32_t> reference(const float* query, const float* weights,
                                                      std::uint64_t position) const {
        const auto visible = static_cast<std::size_t>((position + 1) / ratio);
        std::vector<double> scores(visible);
        for (std::size_t n = 0; n < visible; ++n)
            for (std::size_t h = 0; h < n_heads; ++h) {
                double dot = 0;
                for (std::size_t i = 0; i < dim; ++i)
                    dot += static_cast<double>(query[h * dim + i]) *
                           static_cast<double>(rows[n * dim + i]);
                scores[n] += static_cast<double>(weights[h]) * std::max(0.0, dot);
            }
        std::vector<std::int32_t> ids(visible);
        std::iota(ids.begin(), ids.end(), 0);
        std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
            return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
        });
        ids.resize(std::min<std::size_t>(visible, top_k));
        std::sort(ids.begin(), ids.end());
        return ids;
    }
};

TEST(IndexerSelect, KeepsTheLargestScoresWithTiesToTheLowerRow) {
    Random random(81);
    for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
        const Indexer indexer(random, 2500, 16, format);
        const std::uint32_t n_tokens = 70;
        std::vector<float> queries(n_tokens * 8 * 32), weights(n_tokens * 8);
        // Integers of a few bits, and a scale of 1/16: every score is exact in float32, so ties are
        // true ties.
        for (float& value : queries) value = static_cast<float>(random.below(3)) - 1.0f;
        for (float& value : weights) value = static_cast<float>(random.below(5)) - 2.0f;
        for (const std::uint64_t first :
             {std::uint64_t{0}, std::uint64_t{50}, std::uint64_t{4090}, std::uint64_t{9000}}) {
            const Selection together = indexer.select(queries, weights, first, 0, n_tokens, 3);
            for (std::uint32_t t = 0; t < n_tokens; ++t) {
                const auto expected =
                    indexer.reference(&queries[t * 256], &weights[t * 8], first + t);
                ASSERT_EQ(static_cast<std::size_t>(together.counts[t]), expected.size());
                for (std::size_t i = 0; i < expected.size(); ++i)
                    ASSERT_EQ(together.ids[t * 16 + i], expected[i])
                        << "token " << t << " from " << first;
                const Selection alone = indexer.select(queries, weights, first, t, 1, 1);
                ASSERT_TRUE(std::equal(expected.begin(), expected.end(), alone.ids.begin()));
            }
        }
    }
}

TEST(IndexerSelect, WorkspaceStopsGrowingAt64Tokens) {
    EXPECT_EQ(indexer_select_workspace_bytes(4096, 512), indexer_select_workspace_bytes(64, 512));
    EXPECT_EQ(indexer_select_workspace_bytes(1, 512), 4u * (1024 + 512));
}

TEST(IndexerQuery, RotatesThenRounds) {
    Random random(82);
    std::vector<double> omega(8);
    rope_frequencies({.base = 10000.0, .rope_dim = 16}, omega);
    std::vector<float> queries = uniform_values(random, 3 * 2 * 64), expected = queries;
    cpu::indexer_query({queries.data(), {omega.data(), 16}, 7, 3, 2, 64, CacheRounding::on},
                       Workers(2));
    cpu::rope({expected.data(), {omega.data(), 16}, 7, 3, 2, 64, false}, Workers(1));
    cpu::round_indexer_rows({expected.data(), 6, 64, CacheRounding::on}, Workers(1));
    expect_same(queries, expected);
}

}  // namespace
}  // namespace plimsoll::kernels
