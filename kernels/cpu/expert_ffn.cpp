#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels {

std::uint64_t expert_ffn_workspace_bytes(std::uint32_t n_assignments, std::uint32_t ff_dim,
                                         WeightType down_type, ActivationMode mode) {
    const ActivationFormat format = activation_format(down_type, mode);
    std::uint64_t row_bytes = ff_dim * sizeof(float);
    if (format != ActivationFormat::f32) row_bytes += activation_row_bytes(format, ff_dim);
    return n_assignments * row_bytes;
}

namespace cpu {
namespace {

/// What the phases share. Row i of `mid` belongs to the i-th assignment of the call, counted
/// through the runs.
struct Call {
    const ExpertFfnParams& params;
    float* mid;                // [n_assignments, ff_dim] f32
    std::byte* mid_quantized;  // [n_assignments] rows in down_format, or null
    std::uint64_t n_assignments;
    ActivationFormat input_format;
    ActivationFormat down_format;
};

std::uint32_t assignments_of(const ExpertRun& run) {
    return run.assignment_last - run.assignment_first;
}

/// Token of a run's i-th assignment.
std::uint64_t token_of(const ExpertFfnParams& params, const ExpertRun& run, std::uint64_t i) {
    if (params.assignments == nullptr) return run.assignment_first + i;
    return static_cast<std::uint64_t>(params.assignments[run.assignment_first + i]) /
           params.n_experts_used;
}

float weight_of(const ExpertFfnParams& params, const ExpertRun& run, std::uint64_t i) {
    if (params.assignments == nullptr) return 1.0f;
    return params.expert_weights[params.assignments[run.assignment_first + i]];
}

/// silu(min(gate, clamp)) * clamp(up) * weight, for n rows of one token.
void swiglu(const float* gate, const float* up, std::uint32_t n, float clamp, float weight,
            float* mid) {
    float bounded[kRowTile];
    float decay[kRowTile];
    for (std::uint32_t r = 0; r < n; ++r) {
        bounded[r] = std::min(gate[r], clamp);
        decay[r] = -bounded[r];
    }
    leaf().exp(decay, n);
    for (std::uint32_t r = 0; r < n; ++r)
        mid[r] = bounded[r] / (1.0f + decay[r]) * std::clamp(up[r], -clamp, clamp) * weight;
}

/// Rows [row, row + kRowTile) of gate and up of one run, for all its assignments.
void gate_up_tile(const Call& call, const ExpertRun& run, std::uint64_t mid_first,
                  std::uint64_t row) {
    const ExpertFfnParams& params = call.params;
    const auto dot = find_dot(run.gate.type, call.input_format);
    const auto n_rows =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(kRowTile, params.ff_dim - row));
    const std::uint64_t weight_bytes = weight_row_bytes(run.gate.type, params.hidden);
    const std::uint64_t input_bytes = activation_row_bytes(call.input_format, params.hidden);
    for (std::uint64_t i = 0; i < assignments_of(run); i += kTokenTile) {
        const void* inputs[kTokenTile];
        float gate[kTokenTile * kRowTile];
        float up[kTokenTile * kRowTile];
        const auto n = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(kTokenTile, assignments_of(run) - i));
        for (std::uint32_t t = 0; t < n; ++t)
            inputs[t] = static_cast<const std::byte*>(params.input) +
                        token_of(params, run, i + t) * input_bytes;
        dot({weight_row(run.gate, row), weight_bytes, params.hidden, n_rows, n, inputs, gate});
        dot({weight_row(run.up, row), weight_bytes, params.hidden, n_rows, n, inputs, up});
        for (std::uint32_t t = 0; t < n; ++t)
            swiglu(gate + t * kRowTile, up + t * kRowTile, n_rows, params.clamp,
                   weight_of(params, run, i + t),
                   call.mid + (mid_first + i + t) * params.ff_dim + row);
    }
}

/// Adds rows [row, row + n_rows) of down of one run to its tokens' outputs.
void down_tile(const Call& call, const ExpertRun& run, std::uint64_t mid_first, std::uint64_t row,
               std::uint32_t n_rows) {
    const ExpertFfnParams& params = call.params;
    const auto dot = find_dot(run.down.type, call.down_format);
    const std::uint64_t mid_bytes = activation_row_bytes(call.down_format, params.ff_dim);
    const std::byte* mid = call.mid_quantized != nullptr
                               ? call.mid_quantized
                               : reinterpret_cast<const std::byte*>(call.mid);
    for (std::uint64_t i = 0; i < assignments_of(run); i += kTokenTile) {
        const void* inputs[kTokenTile];
        float products[kTokenTile * kRowTile];
        const auto n = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(kTokenTile, assignments_of(run) - i));
        for (std::uint32_t t = 0; t < n; ++t) inputs[t] = mid + (mid_first + i + t) * mid_bytes;
        dot({weight_row(run.down, row), weight_row_bytes(run.down.type, params.ff_dim),
             params.ff_dim, n_rows, n, inputs, products});
        for (std::uint32_t t = 0; t < n; ++t) {
            float* output = params.output + token_of(params, run, i + t) * params.hidden + row;
            for (std::uint32_t r = 0; r < n_rows; ++r) output[r] += products[t * kRowTile + r];
        }
    }
}

/// Every (run, row tile) is an item: one token's expert still spreads over all threads, and the k
/// experts of a decoded token are one parallel region.
void gate_up(const Call& call, const Workers& workers) {
    const ExpertFfnParams& params = call.params;
    const std::uint64_t tiles = ceil_div(params.ff_dim, kRowTile);
    const std::uint64_t tokens_per_run = ceil_div(call.n_assignments, params.runs.size());
    const std::uint64_t grain =
        rows_per_range(2 * std::uint64_t{params.hidden}, tokens_per_run) / kRowTile;
    workers.parallel_for(
        params.runs.size() * tiles, grain, [&](std::uint64_t first, std::uint64_t last) {
            std::uint64_t run = 0;
            std::uint64_t mid_first = 0;
            for (std::uint64_t item = first; item < last; ++item) {
                for (; run < item / tiles; ++run) mid_first += assignments_of(params.runs[run]);
                gate_up_tile(call, params.runs[run], mid_first, item % tiles * kRowTile);
            }
        });
}

/// Items are output rows, and each goes through the runs in order: that fixes the order of a
/// token's sum.
void down(const Call& call, const Workers& workers) {
    const ExpertFfnParams& params = call.params;
    const std::uint64_t grain =
        rows_per_range(params.ff_dim, std::max<std::uint64_t>(1, call.n_assignments));
    workers.parallel_for(params.hidden, grain, [&](std::uint64_t first, std::uint64_t last) {
        if (!params.accumulate)
            for (std::uint64_t t = 0; t < params.n_tokens; ++t)
                std::fill(params.output + t * params.hidden + first,
                          params.output + t * params.hidden + last, 0.0f);
        for (std::uint64_t row = first; row < last; row += kRowTile) {
            const auto n_rows =
                static_cast<std::uint32_t>(std::min<std::uint64_t>(kRowTile, last - row));
            std::uint64_t mid_first = 0;
            for (const ExpertRun& run : params.runs) {
                down_tile(call, run, mid_first, row, n_rows);
                mid_first += assignments_of(run);
            }
        }
    });
}

void check_shapes(const ExpertFfnParams& params) {
    for (const ExpertRun& run : params.runs) {
        PLIMSOLL_KERNEL_CHECK(run.gate.type == run.up.type,
                              "gate and up share their inputs' format");
        PLIMSOLL_KERNEL_CHECK(run.gate.type == params.runs[0].gate.type,
                              "runs of one call share their types");
        PLIMSOLL_KERNEL_CHECK(run.down.type == params.runs[0].down.type,
                              "runs of one call share their types");
        PLIMSOLL_KERNEL_CHECK(run.gate.n_in == params.hidden, "gate reads the hidden state");
        PLIMSOLL_KERNEL_CHECK(run.gate.n_out == params.ff_dim, "gate gives the inner width");
        PLIMSOLL_KERNEL_CHECK(run.up.n_in == params.hidden, "up reads the hidden state");
        PLIMSOLL_KERNEL_CHECK(run.down.n_in == params.ff_dim, "down reads the inner width");
        PLIMSOLL_KERNEL_CHECK(run.down.n_out == params.hidden, "down gives the hidden state");
    }
}

}  // namespace

void expert_ffn(const ExpertFfnParams& params, const Workers& workers) {
    check_shapes(params);
    Call call{params,
              static_cast<float*>(params.workspace),
              nullptr,
              0,
              ActivationFormat::f32,
              ActivationFormat::f32};
    for (const ExpertRun& run : params.runs) call.n_assignments += assignments_of(run);
    if (!params.runs.empty()) {
        call.input_format = activation_format(params.runs[0].gate.type, params.mode);
        call.down_format = activation_format(params.runs[0].down.type, params.mode);
        gate_up(call, workers);
    }
    if (call.down_format != ActivationFormat::f32) {
        call.mid_quantized =
            reinterpret_cast<std::byte*>(call.mid + call.n_assignments * params.ff_dim);
        quantize_activations(
            {call.mid, call.mid_quantized, static_cast<std::uint32_t>(call.n_assignments),
             params.ff_dim, call.down_format},
            workers);
    }
    down(call, workers);
}

}  // namespace cpu
}  // namespace plimsoll::kernels
