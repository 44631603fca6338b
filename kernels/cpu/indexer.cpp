#include <algorithm>
#include <cmath>

#include "kernels/cache_rounding.hpp"
#include "kernels/check.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/rotation.hpp"
#include "kernels/cpu/row_io.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels {
namespace {

constexpr std::uint32_t kTokenBlock = 64;   // tokens whose scores exist at once
constexpr std::uint32_t kScoreTile = 1024;  // rows whose scores exist at once

}  // namespace

std::uint64_t indexer_select_workspace_bytes(std::uint32_t n_tokens, std::uint32_t top_k) {
    return std::uint64_t{std::min(n_tokens, kTokenBlock)} * (kScoreTile + top_k) * sizeof(float);
}

namespace cpu {
namespace {

constexpr std::uint32_t kRowsAtOnce = 32;  // decoded rows on the stack of one thread

std::uint64_t visible_rows(const IndexerSelectParams& params, std::uint64_t t) {
    return (params.first_position + t + 1) / params.ratio;
}

/// The best top_k rows seen so far of one token, as a heap whose root is the worst of them. Scores
/// lie in the workspace, ids where the result will be.
struct Best {
    float* scores;
    std::int32_t* ids;
    std::uint32_t capacity;

    /// Whether entry a must leave before entry b: lower score, or the later row of equals.
    bool worse(std::uint32_t a, std::uint32_t b) const {
        return scores[a] < scores[b] || (scores[a] == scores[b] && ids[a] > ids[b]);
    }

    void sift_down(std::uint32_t at) {
        for (;;) {
            std::uint32_t worst = at;
            for (std::uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < capacity; ++child)
                if (worse(child, worst)) worst = child;
            if (worst == at) return;
            std::swap(scores[at], scores[worst]);
            std::swap(ids[at], ids[worst]);
            at = worst;
        }
    }

    /// Rows come in ascending order, so a row that ties with the root never displaces it.
    void offer(std::uint64_t row, float score) {
        if (row < capacity) {
            scores[row] = score;
            ids[row] = static_cast<std::int32_t>(row);
            if (row + 1 == capacity)
                for (std::uint32_t at = capacity / 2; at-- > 0;) sift_down(at);
        } else if (score > scores[0]) {
            scores[0] = score;
            ids[0] = static_cast<std::int32_t>(row);
            sift_down(0);
        }
    }
};

/// Scores of rows [row, row + n) for the tokens of a block that see them.
void score_rows(const IndexerSelectParams& params, std::uint64_t token_first,
                std::uint64_t token_last, std::uint64_t tile_first, std::uint64_t row,
                std::uint32_t n, float* scores) {
    float decoded[kRowsAtOnce][kHeadDimMax];
    const float* rows[kRowsAtOnce];
    for (std::uint32_t r = 0; r < n; ++r) rows[r] = indexer_row(params.rows, row + r, decoded[r]);
    const auto scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(params.dim) * params.n_heads));
    for (std::uint64_t t = token_first; t < token_last; ++t) {
        if (visible_rows(params, t) <= row) continue;
        float* sums = scores + (t - token_first) * kScoreTile + (row - tile_first);
        std::fill_n(sums, n, 0.0f);
        for (std::uint64_t h = 0; h < params.n_heads; ++h) {
            float dots[kRowsAtOnce];
            leaf().dot_rows(params.queries + (t * params.n_heads + h) * params.dim, rows, n,
                            params.dim, dots);
            const float weight = params.head_weights[t * params.n_heads + h] * scale;
            for (std::uint32_t r = 0; r < n; ++r) sums[r] += weight * std::max(0.0f, dots[r]);
        }
    }
}

/// The whole selection for at most kTokenBlock tokens.
void select_block(const IndexerSelectParams& params, std::uint64_t token_first,
                  std::uint64_t token_last, const Workers& workers) {
    auto* scores = static_cast<float*>(params.workspace);
    float* best_scores = scores + (token_last - token_first) * kScoreTile;
    const std::uint64_t n_rows = visible_rows(params, token_last - 1);
    for (std::uint64_t tile = 0; tile < n_rows; tile += kScoreTile) {
        const std::uint64_t tile_end = std::min<std::uint64_t>(tile + kScoreTile, n_rows);
        workers.parallel_for(tile_end - tile, kRowsAtOnce,
                             [&](std::uint64_t first, std::uint64_t last) {
                                 score_rows(params, token_first, token_last, tile, tile + first,
                                            static_cast<std::uint32_t>(last - first), scores);
                             });
        workers.parallel_for(
            token_last - token_first, 1, [&](std::uint64_t first, std::uint64_t last) {
                for (std::uint64_t i = first; i < last; ++i) {
                    Best best{best_scores + i * params.top_k,
                              params.selected + (token_first + i) * params.top_k, params.top_k};
                    const std::uint64_t end =
                        std::min(tile_end, visible_rows(params, token_first + i));
                    for (std::uint64_t row = tile; row < end; ++row)
                        best.offer(row, scores[i * kScoreTile + (row - tile)]);
                }
            });
    }
    for (std::uint64_t t = token_first; t < token_last; ++t) {
        std::int32_t* ids = params.selected + t * params.top_k;
        params.selected_count[t] = static_cast<std::int32_t>(params.top_k);
        std::sort(ids, ids + params.top_k);
    }
}

}  // namespace

void indexer_query(const IndexerQueryParams& params, const Workers& workers) {
    const std::uint64_t stride = std::uint64_t{params.n_heads} * params.dim;
    workers.parallel_for(params.n_tokens, rows_for_elements(stride),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t t = first; t < last; ++t) {
                                 const Rotation rotation =
                                     make_rotation(params.rope, params.first_position + t, false);
                                 for (std::uint64_t h = 0; h < params.n_heads; ++h) {
                                     float* query = params.queries + t * stride + h * params.dim;
                                     rotate_tail(query, params.dim, rotation);
                                     if (params.rounding == CacheRounding::off) continue;
                                     hadamard(query, params.dim);
                                     fp4_round(query, params.dim);
                                 }
                             }
                         });
}

void indexer_select(const IndexerSelectParams& params, const Workers& workers) {
    PLIMSOLL_KERNEL_CHECK(params.dim <= kHeadDimMax, "indexer rows are wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.top_k > 0, "nothing to select");
    std::uint64_t t = 0;
    // Tokens that see no more rows than they may keep come first and need no scores.
    for (; t < params.n_tokens && visible_rows(params, t) <= params.top_k; ++t) {
        const std::uint64_t n_rows = visible_rows(params, t);
        params.selected_count[t] = static_cast<std::int32_t>(n_rows);
        for (std::uint64_t row = 0; row < n_rows; ++row)
            params.selected[t * params.top_k + row] = static_cast<std::int32_t>(row);
    }
    for (; t < params.n_tokens; t += kTokenBlock)
        select_block(params, t, std::min<std::uint64_t>(t + kTokenBlock, params.n_tokens), workers);
}

}  // namespace cpu
}  // namespace plimsoll::kernels
