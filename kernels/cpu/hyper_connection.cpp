#include <algorithm>
#include <cmath>

#include "kernels/check.hpp"
#include "kernels/cpu/rms.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// Raw products of fn's rows with each token's flattened streams, left at the head of the token's
/// output row: that row is written only after they have been read, so they need no buffer of their
/// own.
void mix_logits(const WeightMatrix& fn, const float* streams, std::uint32_t n_tokens,
                std::uint32_t output_stride, float* output, const Workers& workers) {
    // Few and long rows: four at a time, so that one token's work can still be shared.
    constexpr std::uint64_t kRows = 4;
    const std::uint64_t row_groups = ceil_div(fn.n_out, kRows);
    const std::uint64_t token_tiles = ceil_div(n_tokens, kTokenTile);
    const auto dot = find_dot(fn.type, ActivationFormat::f32);
    workers.parallel_for(row_groups * token_tiles, 1, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t item = first; item < last; ++item) {
            const std::uint64_t row = item % row_groups * kRows;
            const std::uint64_t token = item / row_groups * kTokenTile;
            const void* inputs[kTokenTile];
            float out[kTokenTile * kRowTile];
            DotTile tile{
                weight_row(fn, row),
                weight_row_bytes(fn.type, fn.n_in),
                fn.n_in,
                static_cast<std::uint32_t>(std::min(kRows, fn.n_out - row)),
                static_cast<std::uint32_t>(std::min<std::uint64_t>(kTokenTile, n_tokens - token)),
                inputs,
                out};
            for (std::uint64_t t = 0; t < tile.n_tokens; ++t)
                inputs[t] = streams + (token + t) * fn.n_in;
            dot(tile);
            for (std::uint64_t t = 0; t < tile.n_tokens; ++t)
                for (std::uint64_t r = 0; r < tile.n_rows; ++r)
                    output[(token + t) * output_stride + row + r] = out[t * kRowTile + r];
        }
    });
}

void normalize_rows(float* matrix, std::uint32_t n, float epsilon) {
    for (std::uint32_t j = 0; j < n; ++j) {
        float sum = 0.0f;
        for (std::uint32_t k = 0; k < n; ++k) sum += matrix[j * n + k];
        for (std::uint32_t k = 0; k < n; ++k) matrix[j * n + k] /= sum + epsilon;
    }
}

void normalize_columns(float* matrix, std::uint32_t n, float epsilon) {
    for (std::uint32_t k = 0; k < n; ++k) {
        float sum = 0.0f;
        for (std::uint32_t j = 0; j < n; ++j) sum += matrix[j * n + k];
        for (std::uint32_t j = 0; j < n; ++j) matrix[j * n + k] /= sum + epsilon;
    }
}

/// Softmax by row, then columns and rows in turn, ending on columns (DeepSeek-V4 reference,
/// Sinkhorn).
void sinkhorn(float* matrix, std::uint32_t n, std::uint32_t iterations, float epsilon) {
    for (std::uint32_t j = 0; j < n; ++j) {
        float* row = matrix + j * n;
        const float largest = *std::max_element(row, row + n);
        float sum = 0.0f;
        for (std::uint32_t k = 0; k < n; ++k) sum += row[k] = std::exp(row[k] - largest);
        for (std::uint32_t k = 0; k < n; ++k) row[k] = row[k] / sum + epsilon;
    }
    normalize_columns(matrix, n, epsilon);
    for (std::uint32_t i = 1; i < iterations; ++i) {
        normalize_rows(matrix, n, epsilon);
        normalize_columns(matrix, n, epsilon);
    }
}

/// out = sum_s weights[s] * X[s].
void mix_streams(const float* streams, const float* weights, std::uint32_t n_streams,
                 std::uint32_t hidden, float* out) {
    for (std::uint32_t i = 0; i < hidden; ++i) out[i] = weights[0] * streams[i];
    for (std::uint32_t s = 1; s < n_streams; ++s) {
        const float* stream = streams + std::uint64_t{s} * hidden;
        for (std::uint32_t i = 0; i < hidden; ++i) out[i] += weights[s] * stream[i];
    }
}

void mix_token(const HcMixParams& params, std::uint64_t t) {
    const std::uint32_t n = params.n_streams;
    const float* streams = params.streams + t * n * params.hidden;
    float* mixed = params.mixed + t * params.hidden;
    float* post = params.coefficients + t * (n + n * n);
    float* comb = post + n;
    const float scale = inverse_rms(streams, n * params.hidden, params.rms_epsilon);
    float pre[kStreamsMax];
    for (std::uint32_t i = 0; i < n; ++i) {
        pre[i] = sigmoid(mixed[i] * scale * params.scale[0] + params.base[i]) + params.hc_epsilon;
        post[i] = 2.0f * sigmoid(mixed[n + i] * scale * params.scale[1] + params.base[n + i]);
    }
    for (std::uint32_t i = 0; i < n * n; ++i)
        comb[i] = mixed[2 * n + i] * scale * params.scale[2] + params.base[2 * n + i];
    sinkhorn(comb, n, params.sinkhorn_iterations, params.hc_epsilon);
    mix_streams(streams, pre, n, params.hidden, mixed);
    rms_row(mixed, params.norm_weight, params.hidden, params.rms_epsilon, mixed);
}

void head_token(const HcHeadParams& params, std::uint64_t t) {
    const std::uint32_t n = params.n_streams;
    const float* streams = params.streams + t * n * params.hidden;
    float* output = params.output + t * params.hidden;
    const float scale = inverse_rms(streams, n * params.hidden, params.rms_epsilon);
    float weights[kStreamsMax];
    for (std::uint32_t s = 0; s < n; ++s)
        weights[s] =
            sigmoid(output[s] * scale * params.scale[0] + params.base[s]) + params.hc_epsilon;
    mix_streams(streams, weights, n, params.hidden, output);
    rms_row(output, params.norm_weight, params.hidden, params.rms_epsilon, output);
}

}  // namespace

void hc_mix(const HcMixParams& params, const Workers& workers) {
    const std::uint32_t n_mix = params.n_streams * (params.n_streams + 2);
    PLIMSOLL_KERNEL_CHECK(params.n_streams <= kStreamsMax, "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(params.hidden >= n_mix, "output rows carry the raw products");
    PLIMSOLL_KERNEL_CHECK(params.fn.n_in == params.n_streams * params.hidden,
                          "fn reads all streams");
    PLIMSOLL_KERNEL_CHECK(params.fn.n_out == n_mix, "fn gives pre, post and comb");
    mix_logits(params.fn, params.streams, params.n_tokens, params.hidden, params.mixed, workers);
    workers.parallel_for(params.n_tokens, 1, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t < last; ++t) mix_token(params, t);
    });
}

void hc_head(const HcHeadParams& params, const Workers& workers) {
    PLIMSOLL_KERNEL_CHECK(params.n_streams <= kStreamsMax, "more streams than supported");
    PLIMSOLL_KERNEL_CHECK(params.hidden >= params.n_streams, "output rows carry the raw products");
    PLIMSOLL_KERNEL_CHECK(params.fn.n_in == params.n_streams * params.hidden,
                          "fn reads all streams");
    PLIMSOLL_KERNEL_CHECK(params.fn.n_out == params.n_streams, "fn gives one weight a stream");
    mix_logits(params.fn, params.streams, params.n_tokens, params.hidden, params.output, workers);
    workers.parallel_for(params.n_tokens, 1, [&](std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t t = first; t < last; ++t) head_token(params, t);
    });
}

void hc_merge(const HcMergeParams& params, const Workers& workers) {
    const std::uint32_t n = params.n_streams;
    PLIMSOLL_KERNEL_CHECK(n <= kStreamsMax, "more streams than supported");
    workers.parallel_for(params.n_tokens, rows_for_elements(std::uint64_t{n} * params.hidden),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t t = first; t < last; ++t) {
                                 const float* post = params.coefficients + t * (n + n * n);
                                 const float* comb = post + n;
                                 const float* y = params.sublayer_out + t * params.hidden;
                                 float* streams = params.streams + t * n * params.hidden;
                                 for (std::uint32_t i = 0; i < params.hidden; ++i) {
                                     float before[kStreamsMax];
                                     for (std::uint32_t j = 0; j < n; ++j)
                                         before[j] = streams[std::uint64_t{j} * params.hidden + i];
                                     for (std::uint32_t k = 0; k < n; ++k) {
                                         float sum = post[k] * y[i];
                                         for (std::uint32_t j = 0; j < n; ++j)
                                             sum += comb[j * n + k] * before[j];
                                         streams[std::uint64_t{k} * params.hidden + i] = sum;
                                     }
                                 }
                             }
                         });
}

}  // namespace plimsoll::kernels::cpu
