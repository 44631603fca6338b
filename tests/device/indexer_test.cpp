#include <algorithm>
#include <numeric>

#include "kernels/cache_rounding.hpp"
#include "kernels/cuda/decode.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct IndexerShape {
    KvFormat format;
    CacheRounding rounding;
    std::uint32_t n_heads, dim, rope_dim, n_rows, top_k;
    std::uint32_t ratio = 4;

    /// Small integers have exact scores where 1 / sqrt(dim * n_heads) is a power of two.
    [[nodiscard]] bool can_be_exact() const {
        const double root = std::sqrt(static_cast<double>(dim) * n_heads);
        return std::exp2(std::round(std::log2(root))) == root;
    }
    [[nodiscard]] std::string text() const {
        return std::string(format == KvFormat::packed ? "packed" : "f32") +
               (rounding == CacheRounding::on ? ", rounded" : "") + ", heads " +
               std::to_string(n_heads) + ", dim " + std::to_string(dim) + ", rope " +
               std::to_string(rope_dim) + ", rows " + std::to_string(n_rows) + ", top " +
               std::to_string(top_k);
    }
};

std::vector<double> frequencies_of(std::uint32_t rope_dim) {
    std::vector<double> frequencies(rope_dim / 2);
    rope_frequencies({.base = 160000.0, .rope_dim = rope_dim, .yarn = true}, frequencies);
    return frequencies;
}

TEST(GpuIndexerQuery, RotatesAndRoundsAsTheCpuDoes) {
    PLIMSOLL_NEEDS_GPU();
    Random random(521);
    DeviceStep step;
    for (const CacheRounding rounding : {CacheRounding::off, CacheRounding::on})
        for (const std::uint32_t dim : {32u, 64u, 128u, 256u, 512u}) {
            const std::uint32_t n_tokens = 3, n_heads = 5, rope_dim = std::min(dim / 2, 64u);
            const std::string what =
                "dim " + std::to_string(dim) + (rounding == CacheRounding::on ? ", rounded" : "");
            const std::vector<double> frequencies = frequencies_of(rope_dim);
            std::vector<float> queries =
                extreme_values(random, std::size_t{n_tokens} * n_heads * dim);
            const DeviceArray<float> device_queries(queries);
            IndexerQueryParams params{
                queries.data(), {frequencies.data(), rope_dim}, 1'000'003, n_tokens, n_heads, dim,
                rounding};
            cpu::indexer_query(params, Workers(1));
            params.queries = device_queries.data();
            cuda::indexer_query(params, step.launch(1'000'003));
            step.wait();
            const std::vector<float> actual = device_queries.download();
            EXPECT_TRUE(device_queries.guard_intact()) << what;
            if (rounding == CacheRounding::off) {
                expect_close(actual, queries, {.relative_max = 1e-6}, what);
                continue;
            }
            // An angle's last bit may move a value over a midpoint, rarely and by one code.
            expect_close(actual, queries, {.cosine_min = 0.9999}, what);
            const auto differing = static_cast<std::size_t>(
                std::inner_product(actual.begin(), actual.end(), queries.begin(), 0, std::plus<>(),
                                   [](float a, float e) { return a != e ? 1 : 0; }));
            EXPECT_LE(differing, actual.size() / 500) << what;
        }
}

TEST(GpuIndexerQuery, RoundsBitForBitWhereNothingIsRotated) {
    PLIMSOLL_NEEDS_GPU();
    Random random(522);
    DeviceStep step;
    for (const std::uint32_t dim : {32u, 128u, 512u}) {
        // Few distinct values meet many midpoints; tiny and huge ones the ends of the exponents.
        std::vector<float> queries(std::size_t{6} * dim);
        for (std::size_t i = 0; i < queries.size(); ++i)
            queries[i] = i / dim < 2   ? static_cast<float>(random.below(9)) - 4.0f
                         : i / dim < 4 ? random.extreme()
                                       : random.uniform(i / dim == 4 ? 1e-37f : 1e30f);
        const DeviceArray<float> device_queries(queries);
        IndexerQueryParams params{queries.data(), {}, 5, 2, 3, dim, CacheRounding::on};
        cpu::indexer_query(params, Workers(1));
        params.queries = device_queries.data();
        cuda::indexer_query(params, step.launch(5));
        step.wait();
        expect_equal(device_queries.download(), queries, "dim " + std::to_string(dim));
    }
}

struct Selection {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> counts;
};

/// Rows, queries (final form) and head weights on both sides.
struct Indexer {
    IndexerShape shape;
    std::vector<double> frequencies;
    std::vector<float> raw_queries, queries, weights, rows;
    Region region;
    IndexerRows view;
    DeviceArray<float> device_raw, device_queries, device_weights;
    DeviceBytes device_region;
    IndexerRows device_view;

    /// `exact`: few small integers and powers of two, so that every score is exact and many tie.
    Indexer(Random& random, const IndexerShape& of, std::uint32_t n_tokens, bool exact,
            std::uint64_t position)
        : shape(of),
          frequencies(frequencies_of(of.rope_dim)),
          raw_queries(std::size_t{n_tokens} * of.n_heads * of.dim),
          weights(std::size_t{n_tokens} * of.n_heads),
          rows(std::size_t{of.n_rows} * of.dim),
          region(indexer_rows_bytes(of.format, of.n_rows, of.dim)),
          view{region.data(), of.format, of.n_rows, of.dim},
          device_raw(raw_queries.size()),
          device_queries(raw_queries.size()),
          device_weights(weights.size()),
          device_region(indexer_rows_bytes(of.format, of.n_rows, of.dim)),
          device_view{device_region.data(), of.format, of.n_rows, of.dim} {
        const auto value = [&] {
            return exact ? static_cast<float>(random.below(3)) - 1.0f : random.uniform();
        };
        for (float& q : raw_queries) q = value();
        for (float& w : weights) w = exact ? static_cast<float>(random.below(5)) - 2.0f : value();
        for (std::size_t row = 0; row < of.n_rows; ++row) {
            const float size = exact ? 1.0f : std::exp2(random.uniform(6.0f));
            for (std::size_t i = 0; i < of.dim; ++i) rows[row * of.dim + i] = size * value();
        }
        if (of.rounding == CacheRounding::on)
            for (std::size_t row = 0; row < of.n_rows; ++row)
                fp4_round(&rows[row * of.dim], of.dim);
        cpu::store_indexer_rows({rows.data(), view, 0, of.n_rows}, Workers(1));
        queries = raw_queries;
        if (!exact)
            cpu::indexer_query({queries.data(),
                                {frequencies.data(), of.rope_dim},
                                position,
                                n_tokens,
                                of.n_heads,
                                of.dim,
                                of.rounding},
                               Workers(1));
        device_raw.upload(raw_queries);
        device_queries.upload(queries);
        device_weights.upload(weights);
        device_region.upload(region.data(), device_region.size_bytes());
    }

    [[nodiscard]] IndexerSelectParams params(std::uint64_t position, std::uint32_t n_tokens,
                                             Selection& out, void* workspace) const {
        out = {std::vector<std::int32_t>(std::size_t{n_tokens} * shape.top_k),
               std::vector<std::int32_t>(n_tokens)};
        return {queries.data(),    weights.data(), view,        out.ids.data(),
                out.counts.data(), workspace,      position,    n_tokens,
                shape.n_heads,     shape.dim,      shape.top_k, shape.ratio};
    }
};

/// The score of a row in double, as the definition has it.
double score_of(const Indexer& indexer, std::size_t token, std::size_t row) {
    const std::size_t n_heads = indexer.shape.n_heads, dim = indexer.shape.dim;
    double score = 0;
    for (std::size_t h = 0; h < n_heads; ++h) {
        double dot = 0;
        for (std::size_t i = 0; i < dim; ++i)
            dot += static_cast<double>(indexer.queries[(token * n_heads + h) * dim + i]) *
                   static_cast<double>(indexer.rows[row * dim + i]);
        score += static_cast<double>(indexer.weights[token * n_heads + h]) * std::max(0.0, dot);
    }
    return score / std::sqrt(static_cast<double>(dim * n_heads));
}

/// The same rows, but for those whose scores no float32 sum tells apart.
void expect_same_rows(const Indexer& indexer, std::size_t token, std::vector<std::int32_t> actual,
                      std::vector<std::int32_t> expected, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    ASSERT_TRUE(std::is_sorted(actual.begin(), actual.end())) << what;
    std::vector<std::int32_t> only_actual, only_expected;
    std::set_difference(actual.begin(), actual.end(), expected.begin(), expected.end(),
                        std::back_inserter(only_actual));
    std::set_difference(expected.begin(), expected.end(), actual.begin(), actual.end(),
                        std::back_inserter(only_expected));
    ASSERT_EQ(only_actual.size(), only_expected.size()) << what << ": rows twice";
    ASSERT_LE(only_actual.size(), 2 + expected.size() / 50) << what;
    for (const std::int32_t a : only_actual)
        for (const std::int32_t e : only_expected) {
            const double expected_score = score_of(indexer, token, static_cast<std::size_t>(e));
            ASSERT_NEAR(score_of(indexer, token, static_cast<std::size_t>(a)), expected_score,
                        1e-5 * (1 + std::fabs(expected_score)))
                << what << ": row " << a << " in place of " << e;
        }
}

const IndexerShape kShapes[] = {
    {KvFormat::packed, CacheRounding::on, 8, 32, 16, 300, 16},
    {KvFormat::packed, CacheRounding::on, 64, 128, 64, 700, 100},
    {KvFormat::packed, CacheRounding::on, 32, 128, 64, 500, 100},
    {KvFormat::packed, CacheRounding::on, 4, 64, 32, 90, 7},
    {KvFormat::packed, CacheRounding::on, 70, 32, 16, 90, 7},
    {KvFormat::packed, CacheRounding::on, 3, 256, 64, 70, 5},
    {KvFormat::f32, CacheRounding::off, 5, 64, 32, 150, 12},
    {KvFormat::f32, CacheRounding::off, 8, 128, 64, 100, 30},
    {KvFormat::f32, CacheRounding::on, 20, 128, 64, 120, 33},
};

void compare_chunk(Random& random, const IndexerShape& shape, std::uint32_t n_tokens, bool exact,
                   std::uint64_t position) {
    const std::string what = shape.text() + ", tokens " + std::to_string(n_tokens) + " from " +
                             std::to_string(position) + (exact ? ", exact" : "");
    const Indexer indexer(random, shape, n_tokens, exact, position);
    Selection expected;
    std::vector<std::byte> workspace(indexer_select_workspace_bytes(n_tokens, shape.top_k));
    IndexerSelectParams params = indexer.params(position, n_tokens, expected, workspace.data());
    cpu::indexer_select(params, Workers(2));

    DeviceStep step;
    const DeviceArray<std::int32_t> ids(expected.ids.size()), counts(n_tokens);
    const DeviceBytes device_workspace(
        cuda::indexer_select_workspace_bytes(n_tokens, shape.n_rows));
    params.queries = indexer.device_queries.data();
    params.head_weights = indexer.device_weights.data();
    params.rows = indexer.device_view;
    params.selected = ids.data();
    params.selected_count = counts.data();
    params.workspace = device_workspace.data();
    params.first_position = 0;
    cuda::indexer_select(params, step.launch(position));
    step.wait();
    EXPECT_TRUE(ids.guard_intact() && counts.guard_intact() && device_workspace.guard_intact() &&
                indexer.device_region.guard_intact())
        << what;
    expect_equal(counts.download(), expected.counts, what);
    const std::vector<std::int32_t> actual = ids.download();
    for (std::uint32_t t = 0; t < n_tokens; ++t) {
        const auto first = static_cast<std::ptrdiff_t>(std::size_t{t} * shape.top_k);
        const auto last = first + expected.counts[t];
        const std::vector<std::int32_t> own(actual.begin() + first, actual.begin() + last);
        const std::vector<std::int32_t> best(expected.ids.begin() + first,
                                             expected.ids.begin() + last);
        const std::string of_token = what + ", token " + std::to_string(t);
        if (exact)
            expect_equal(own, best, of_token);
        else
            expect_same_rows(indexer, t, own, best, of_token);
    }
}

TEST(GpuIndexerSelect, KeepsTheRowsThatTheCpuKeeps) {
    PLIMSOLL_NEEDS_GPU();
    Random random(523);
    for (const IndexerShape& shape : kShapes) {
        const std::uint32_t n_tokens = 9;
        const std::uint64_t last = std::uint64_t{shape.n_rows} * shape.ratio - n_tokens;
        compare_chunk(random, shape, n_tokens, false, last);
        if (shape.can_be_exact()) compare_chunk(random, shape, n_tokens, true, last);
        compare_chunk(random, shape, n_tokens, true, 0);
        // The first tokens see no more rows than they may keep.
        compare_chunk(random, shape, n_tokens, false, std::uint64_t{shape.top_k} * shape.ratio - 1);
    }
    compare_chunk(random, kShapes[2], 1, true, 1500);
}

struct DecodeRun {
    std::vector<float> scores;
    Selection selection;
};

DecodeRun decode(const Indexer& indexer, std::uint64_t position, bool rotates) {
    const IndexerShape& shape = indexer.shape;
    DeviceStep step;
    const DeviceArray<float> scores(shape.n_rows);
    const DeviceArray<std::int32_t> ids(shape.top_k), count(1);
    const cuda::DecodeIndexerParams params{
        rotates ? indexer.device_raw.data() : indexer.device_queries.data(),
        indexer.device_weights.data(),
        indexer.device_view,
        rotates ? RopeTable{indexer.frequencies.data(), shape.rope_dim} : RopeTable{},
        rotates ? shape.rounding : CacheRounding::off,
        scores.data(),
        ids.data(),
        count.data(),
        shape.n_heads,
        shape.dim,
        shape.top_k,
        shape.ratio};
    cuda::decode_indexer_select(params, step.launch(position));
    step.wait();
    EXPECT_TRUE(scores.guard_intact() && ids.guard_intact() && count.guard_intact())
        << shape.text();
    return {scores.download(), {ids.download(), count.download()}};
}

TEST(GpuDecodeIndexer, KeepsTheRowsThatTheCpuKeeps) {
    PLIMSOLL_NEEDS_GPU();
    Random random(524);
    for (const IndexerShape& shape : kShapes)
        for (const bool exact : {shape.can_be_exact(), false})
            for (const std::uint64_t position :
                 {std::uint64_t{shape.n_rows} * shape.ratio - 1,
                  std::uint64_t{shape.top_k} * shape.ratio + 3,
                  std::uint64_t{shape.top_k} * shape.ratio - 1, std::uint64_t{0}}) {
                const std::string what = shape.text() + ", position " + std::to_string(position) +
                                         (exact ? ", exact" : "");
                const Indexer indexer(random, shape, 1, exact, position);
                Selection expected;
                std::vector<std::byte> workspace(indexer_select_workspace_bytes(1, shape.top_k));
                cpu::indexer_select(indexer.params(position, 1, expected, workspace.data()),
                                    Workers(1));
                DecodeRun run = decode(indexer, position, !exact);
                expect_equal(run.selection.counts, expected.counts, what);
                run.selection.ids.resize(static_cast<std::size_t>(expected.counts[0]));
                expected.ids.resize(static_cast<std::size_t>(expected.counts[0]));
                if (exact)
                    expect_equal(run.selection.ids, expected.ids, what);
                else
                    expect_same_rows(indexer, 0, run.selection.ids, expected.ids, what);
            }
}

TEST(GpuDecodeIndexer, GivesTheScoresOfAChunkBitForBit) {
    PLIMSOLL_NEEDS_GPU();
    Random random(525);
    for (const IndexerShape& shape : kShapes) {
        const std::uint64_t position = std::uint64_t{shape.n_rows} * shape.ratio - 1;
        const Indexer indexer(random, shape, 1, false, position);
        const DecodeRun run = decode(indexer, position, false);
        DeviceStep step;
        const DeviceArray<std::int32_t> ids(shape.top_k), count(1);
        const DeviceArray<float> workspace(shape.n_rows);
        Selection unused;
        IndexerSelectParams params = indexer.params(position, 1, unused, workspace.data());
        params.queries = indexer.device_queries.data();
        params.head_weights = indexer.device_weights.data();
        params.rows = indexer.device_view;
        params.selected = ids.data();
        params.selected_count = count.data();
        cuda::indexer_select(params, step.launch(position));
        step.wait();
        expect_equal(run.scores, workspace.download(), shape.text());
        expect_equal(run.selection.ids, ids.download(), shape.text());
        std::vector<float> expected(shape.n_rows);
        for (std::uint32_t row = 0; row < shape.n_rows; ++row)
            expected[row] = static_cast<float>(score_of(indexer, 0, row));
        expect_close(run.scores, expected, {.relative_max = 1e-5}, shape.text());
    }
}

/// Scores given, not computed: the choice alone.
TEST(GpuDecodeIndexer, ChoosesExactlyAmongAnyScores) {
    PLIMSOLL_NEEDS_GPU();
    Random random(526);
    DeviceStep step;
    const char* kinds[] = {"uniform",       "all equal", "two values",
                           "huge and tiny", "zeros",     "spread"};
    for (const std::uint32_t n_rows : {600u, 3000u, 9000u, 40'000u})
        for (std::uint32_t kind = 0; kind < 6; ++kind) {
            const std::uint32_t top_k = kind % 2 == 0 ? 512 : 37;
            const std::string what = std::string(kinds[kind]) + ", rows " + std::to_string(n_rows);
            std::vector<float> scores(n_rows);
            for (float& score : scores) switch (kind) {
                    case 0: score = random.uniform(); break;
                    case 1: score = -3.0f; break;
                    case 2: score = random.below(3) == 0 ? 1.5f : -0.25f; break;
                    case 3: score = random.below(50) == 0 ? 3e38f : random.uniform(1e-3f); break;
                    case 4: score = random.below(2) == 0 ? 0.0f : -0.0f; break;
                    default: score = std::exp2(random.uniform(60.0f)); break;
                }
            std::vector<std::int32_t> expected(n_rows);
            std::iota(expected.begin(), expected.end(), 0);
            std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
                return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
            });
            expected.resize(top_k);
            std::sort(expected.begin(), expected.end());
            const DeviceArray<float> device_scores(scores);
            const DeviceArray<std::int32_t> ids(top_k), count(1);
            cuda::DecodeIndexerParams params{};
            params.rows.row_capacity = n_rows + 5;
            params.scores = device_scores.data();
            params.selected = ids.data();
            params.selected_count = count.data();
            params.top_k = top_k;
            params.ratio = 4;
            cuda::decode_indexer_choose(params, step.launch(std::uint64_t{n_rows} * 4 + 2));
            step.wait();
            expect_equal(ids.download(), expected, what);
            EXPECT_EQ(count.download()[0], static_cast<std::int32_t>(top_k)) << what;
            EXPECT_TRUE(ids.guard_intact()) << what;
        }
}

TEST(GpuIndexerSelect, ScoresOnlyAsManyTokensAsFitTheScratch) {
    PLIMSOLL_NEEDS_GPU();
    EXPECT_EQ(cuda::indexer_select_workspace_bytes(3, 1000), 3u * 1000 * 4);
    EXPECT_EQ(cuda::indexer_select_workspace_bytes(4096, 262'144), 32u << 20);
    EXPECT_EQ(cuda::indexer_select_workspace_bytes(2, 10'000'000), 40'000'000u);
    // A region of rows that 40 tokens' scores do not fit at once: several passes, few rows visible.
    Random random(527);
    IndexerShape shape = kShapes[0];
    shape.n_rows = 500'000;
    shape.top_k = 4;
    compare_chunk(random, shape, 40, true, 120);
}

}  // namespace
}  // namespace plimsoll::kernels
