#include <algorithm>
#include <cmath>

#include "kernels/check.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/rotation.hpp"
#include "kernels/cpu/row_io.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Rows decoded at a time (64 KiB of stack at head_dim 512) and heads that share them (32 KiB of
/// sums). Row tiles count from a token's first row, so the running softmax takes the same steps
/// however tokens are batched.
constexpr std::uint32_t kAttentionRows = 32;
constexpr std::uint32_t kAttentionHeads = 16;

/// The rows one token attends to, in order: window positions, then compressed rows.
struct VisibleRows {
    const AttentionParams& params;
    std::uint64_t token;
    std::uint64_t window_first;  // position
    std::uint64_t n_window;
    std::uint64_t n_compressed;

    VisibleRows(const AttentionParams& attention, std::uint64_t t) : params(attention), token(t) {
        const std::uint64_t position = params.first_position + t;
        window_first = position + 1 > params.window ? position + 1 - params.window : 0;
        n_window = position + 1 - window_first;
        n_compressed = params.ratio == 0 ? 0 : (position + 1) / params.ratio;
        if (params.selected != nullptr)
            n_compressed = static_cast<std::uint64_t>(params.selected_count[t]);
    }

    [[nodiscard]] std::uint64_t count() const { return n_window + n_compressed; }

    /// Row i of the list, where it lies or decoded into `decoded`.
    [[nodiscard]] const float* row(std::uint64_t i, float* decoded) const {
        if (i >= n_window) {
            std::uint64_t n = i - n_window;
            if (params.selected != nullptr)
                n = static_cast<std::uint64_t>(params.selected[token * params.selected_stride + n]);
            return kv_row(params.compressed, n, decoded);
        }
        const std::uint64_t position = window_first + i;
        if (position >= params.first_position)
            return params.chunk_rows + (position - params.first_position) * params.head_dim;
        return kv_row(params.ring, position % params.ring.row_capacity, decoded);
    }
};

/// A softmax that is added to tile by tile: largest logit so far, and sums relative to it.
struct RunningSoftmax {
    float largest;
    float sum;
};

/// Adds n rows to one head's softmax and weighted sum.
void add_rows(const float* query, const float* const* rows, std::uint32_t n, std::uint32_t head_dim,
              float scale, RunningSoftmax& softmax, float* weighted) {
    // One more element than rows: the factor for what was summed before goes through the same exp.
    float weights[kAttentionRows + 1];
    leaf().dot_rows(query, rows, n, head_dim, weights);
    float largest = softmax.largest;
    for (std::uint32_t r = 0; r < n; ++r) {
        weights[r] *= scale;
        largest = std::max(largest, weights[r]);
    }
    weights[n] = softmax.largest;
    for (std::uint32_t r = 0; r <= n; ++r) weights[r] -= largest;
    leaf().exp(weights, n + 1);
    const float rescale = weights[n];
    float sum = softmax.sum * rescale;
    for (std::uint32_t r = 0; r < n; ++r) sum += weights[r];
    softmax = {largest, sum};
    leaf().accumulate_rows(weighted, rescale, weights, rows, n, head_dim);
}

void attend(const AttentionParams& params, std::uint64_t t, std::uint32_t head_first,
            std::uint32_t n_heads) {
    const std::uint32_t head_dim = params.head_dim;
    const std::uint64_t at = (t * params.n_heads + head_first) * head_dim;
    const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
    const VisibleRows visible(params, t);
    float decoded[kAttentionRows][kHeadDimMax];
    float weighted[kAttentionHeads][kHeadDimMax];
    RunningSoftmax softmax[kAttentionHeads];
    for (std::uint32_t h = 0; h < n_heads; ++h) {
        // The sink is the first logit, without a value.
        softmax[h] = {params.sinks[head_first + h], 1.0f};
        std::fill_n(weighted[h], head_dim, 0.0f);
    }
    for (std::uint64_t first = 0; first < visible.count(); first += kAttentionRows) {
        const auto n = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(kAttentionRows, visible.count() - first));
        const float* rows[kAttentionRows];
        for (std::uint32_t r = 0; r < n; ++r) rows[r] = visible.row(first + r, decoded[r]);
        for (std::uint32_t h = 0; h < n_heads; ++h)
            add_rows(params.q + at + std::uint64_t{h} * head_dim, rows, n, head_dim, scale,
                     softmax[h], weighted[h]);
    }
    // All reads of these heads' queries are done: the output may lie over them.
    const bool rotated = params.inverse_rope.frequencies != nullptr;
    Rotation rotation;
    if (rotated) rotation = make_rotation(params.inverse_rope, params.first_position + t, true);
    for (std::uint32_t h = 0; h < n_heads; ++h) {
        float* output = params.output + at + std::uint64_t{h} * head_dim;
        for (std::uint32_t i = 0; i < head_dim; ++i) output[i] = weighted[h][i] / softmax[h].sum;
        if (rotated) rotate_tail(output, head_dim, rotation);
    }
}

/// Heads a work item takes: as many as share decoded rows, fewer where tokens alone would not
/// occupy the threads.
std::uint32_t heads_per_item(const AttentionParams& params, std::uint32_t n_threads) {
    std::uint32_t heads = std::min(kAttentionHeads, params.n_heads);
    while (heads > 1 && ceil_div(params.n_heads, heads) * params.n_tokens < n_threads)
        heads = (heads + 1) / 2;
    return heads;
}

}  // namespace

void attention(const AttentionParams& params, const Workers& workers) {
    PLIMSOLL_KERNEL_CHECK(params.head_dim <= kHeadDimMax, "heads are wider than supported");
    PLIMSOLL_KERNEL_CHECK(
        params.first_position == 0 || params.ring.row_capacity + 1 >= params.window,
        "the ring must hold the window but for the token itself");
    PLIMSOLL_KERNEL_CHECK((params.selected == nullptr) == (params.selected_count == nullptr),
                          "selected rows come with their counts");
    const std::uint32_t heads = heads_per_item(params, workers.n_threads());
    const std::uint64_t groups = ceil_div(params.n_heads, heads);
    workers.parallel_for(params.n_tokens * groups, 1, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t item = first; item < last; ++item) {
            const auto head = static_cast<std::uint32_t>(item % groups * heads);
            attend(params, item / groups, head, std::min(heads, params.n_heads - head));
        }
    });
}

}  // namespace plimsoll::kernels::cpu
