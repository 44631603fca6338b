#include <algorithm>
#include <cstring>

#include "kernels/cache_rounding.hpp"
#include "kernels/check.hpp"
#include "kernels/cpu/rms.hpp"
#include "kernels/cpu/rotation.hpp"
#include "kernels/cpu/row_io.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels {

void compressor_reset(void* state, std::uint32_t ratio, std::uint32_t width) {
    const std::uint64_t plane = std::uint64_t{compressor_state_rows(ratio)} * width;
    auto* values = static_cast<float*>(state);
    std::fill_n(values, plane, 0.0f);
    std::fill_n(values + plane, plane, -1e30f);
}

namespace cpu {
namespace {

constexpr std::uint32_t kRatioMax = 128;
constexpr std::uint32_t kOverlapRatio = 4;

/// Columns pooled at a time: their logits, 128 tokens' worth, take 32 KiB of stack.
constexpr std::uint32_t kColumnBlock = 64;

struct State {
    float* kv;     // [rows, width]
    float* score;  // [rows, width]
    std::uint64_t width;

    State(const CompressorParams& params)
        : kv(static_cast<float*>(params.state)),
          width(std::uint64_t{compressor_lanes(params.ratio)} * params.dim) {
        score = kv + compressor_state_rows(params.ratio) * width;
    }
};

/// State row of a token of the current window.
std::uint64_t current_row(const CompressorParams& params, std::uint64_t position) {
    return position % params.ratio + (params.ratio == kOverlapRatio ? kOverlapRatio : 0);
}

/// State row of a token before this chunk: of the current window or, with overlap, of the one
/// before it.
std::uint64_t earlier_row(const CompressorParams& params, std::uint64_t position) {
    const std::uint64_t window = params.first_position / params.ratio;
    return position / params.ratio == window ? current_row(params, position)
                                             : position % params.ratio;
}

/// Columns [column, column + n) of one token, from the chunk or from the state: value and biased
/// logit.
void gather(const CompressorParams& params, const State& state, std::uint64_t position,
            std::uint64_t column, std::uint32_t n, const float** values, float* logits) {
    if (position < params.first_position) {
        const std::uint64_t at = earlier_row(params, position) * state.width + column;
        *values = state.kv + at;
        std::memcpy(logits, state.score + at, n * sizeof(float));
        return;
    }
    const std::uint64_t at = (position - params.first_position) * state.width + column;
    *values = params.g_kv + at;
    leaf().decode(params.ape.type, weight_row(params.ape, position % params.ratio),
                  static_cast<std::uint32_t>(column), n, logits);
    for (std::uint32_t c = 0; c < n; ++c) logits[c] += params.g_sc[at + c];
}

/// Softmax over the candidates of a window and the weighted sum, column by column; candidates in
/// ascending position order, with overlap lane A of the previous window before lane B of this one.
void pool_columns(const CompressorParams& params, const State& state, std::uint64_t window,
                  std::uint32_t column, std::uint32_t n, float* pooled) {
    const bool overlap = params.ratio == kOverlapRatio;
    const std::uint32_t n_candidates = overlap ? 2 * kOverlapRatio : params.ratio;
    float logits[kRatioMax][kColumnBlock];
    const float* values[kRatioMax];
    for (std::uint32_t i = 0; i < n_candidates; ++i) {
        if (!overlap) {
            gather(params, state, window * params.ratio + i, column, n, &values[i], logits[i]);
        } else if (i >= kOverlapRatio) {
            gather(params, state, window * kOverlapRatio + (i - kOverlapRatio), params.dim + column,
                   n, &values[i], logits[i]);
        } else if (window > 0) {
            gather(params, state, (window - 1) * kOverlapRatio + i, column, n, &values[i],
                   logits[i]);
        } else {
            // Before the first window there is nothing: any value, at weight zero.
            values[i] = params.norm_weight;
            std::fill_n(logits[i], n, -1e30f);
        }
    }
    float largest[kColumnBlock];
    std::copy_n(logits[0], n, largest);
    for (std::uint32_t i = 1; i < n_candidates; ++i)
        for (std::uint32_t c = 0; c < n; ++c) largest[c] = std::max(largest[c], logits[i][c]);
    float sum[kColumnBlock] = {};
    std::fill_n(pooled, n, 0.0f);
    for (std::uint32_t i = 0; i < n_candidates; ++i) {
        for (std::uint32_t c = 0; c < n; ++c) logits[i][c] -= largest[c];
        leaf().exp(logits[i], n);
        for (std::uint32_t c = 0; c < n; ++c) {
            sum[c] += logits[i][c];
            pooled[c] += logits[i][c] * values[i][c];
        }
    }
    for (std::uint32_t c = 0; c < n; ++c) pooled[c] /= sum[c];
}

void emit_row(const CompressorParams& params, const State& state, std::uint64_t window) {
    float row[kHeadDimMax];
    for (std::uint32_t column = 0; column < params.dim; column += kColumnBlock)
        pool_columns(params, state, window, column, std::min(kColumnBlock, params.dim - column),
                     row + column);
    rms_row(row, params.norm_weight, params.dim, params.rms_epsilon, row);
    rotate_tail(row, params.dim, make_rotation(params.rope, window * params.ratio, false));
    if (params.kv_rows.base != nullptr) {
        round_kv_row(row, params.dim, params.rope.rope_dim, params.kv_rows.format, params.rounding);
        store_kv_row(params.kv_rows, window, row);
        return;
    }
    if (params.rounding == CacheRounding::on) {
        hadamard(row, params.dim);
        fp4_round(row, params.dim);
    }
    store_indexer_row(params.indexer_rows, window, row);
}

/// Row by row what token-by-token decoding would have left, so that a state does not tell how it
/// was reached.
void update_state(const CompressorParams& params, State& state) {
    const std::uint64_t end = params.first_position + params.n_tokens;
    const std::uint64_t window = end / params.ratio;
    const auto n = static_cast<std::uint32_t>(state.width);
    const auto copy_token = [&](std::uint64_t position, std::uint64_t row) {
        const float* values = nullptr;
        float* score = state.score + row * state.width;
        gather(params, state, position, 0, n, &values, score);
        std::memcpy(state.kv + row * state.width, values, n * sizeof(float));
    };
    if (params.ratio == kOverlapRatio && window > params.first_position / params.ratio)
        for (std::uint64_t i = 0; i < kOverlapRatio; ++i)
            copy_token((window - 1) * kOverlapRatio + i, i);
    const std::uint64_t kept = std::min<std::uint64_t>(params.n_tokens, params.ratio);
    for (std::uint64_t position = end - kept; position < end; ++position)
        copy_token(position, current_row(params, position));
}

}  // namespace

void compress(const CompressorParams& params, const Workers& workers) {
    const bool for_attention = params.kv_rows.base != nullptr;
    PLIMSOLL_KERNEL_CHECK(for_attention != (params.indexer_rows.base != nullptr),
                          "one region to write to");
    PLIMSOLL_KERNEL_CHECK(params.dim <= kHeadDimMax, "row is wider than supported");
    PLIMSOLL_KERNEL_CHECK(params.ratio > 0, "a window has tokens");
    PLIMSOLL_KERNEL_CHECK(params.ratio <= kRatioMax, "window is longer than supported");
    State state(params);
    const std::uint64_t first_window = params.first_position / params.ratio;
    const std::uint64_t end_window = (params.first_position + params.n_tokens) / params.ratio;
    workers.parallel_for(end_window - first_window, 1,
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i)
                                 emit_row(params, state, first_window + i);
                         });
    update_state(params, state);
}

}  // namespace cpu
}  // namespace plimsoll::kernels
