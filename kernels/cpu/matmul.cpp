#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Rows [row, row + n_rows) of one group for all tokens; n_rows <= kRowTile.
void multiply_rows(const MatmulParams& params, void (*dot)(const DotTile&), std::uint64_t row,
                   std::uint32_t n_rows) {
    const WeightMatrix& weight = params.weight;
    const std::uint64_t slice_bytes = activation_row_bytes(params.input_format, weight.n_in);
    const std::uint64_t group = row / (weight.n_out / params.n_groups);
    const auto* input = static_cast<const std::byte*>(params.input) + group * slice_bytes;
    const std::uint64_t input_stride_bytes = slice_bytes * params.n_groups;
    const std::uint64_t output_stride =
        params.output_stride != 0 ? params.output_stride : weight.n_out;
    for (std::uint64_t token = 0; token < params.n_tokens; token += kTokenTile) {
        const void* inputs[kTokenTile];
        float out[kTokenTile * kRowTile];
        const auto n_tokens = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(kTokenTile, params.n_tokens - token));
        for (std::uint64_t t = 0; t < n_tokens; ++t)
            inputs[t] = input + (token + t) * input_stride_bytes;
        dot({weight_row(weight, row), weight_row_bytes(weight.type, weight.n_in), weight.n_in,
             n_rows, n_tokens, inputs, out});
        for (std::uint64_t t = 0; t < n_tokens; ++t) {
            float* output = params.output + (token + t) * output_stride + row;
            const float* products = out + t * kRowTile;
            if (params.accumulate)
                for (std::uint32_t r = 0; r < n_rows; ++r) output[r] += products[r];
            else
                std::copy_n(products, n_rows, output);
        }
    }
}

}  // namespace

void quantize_activations(const QuantizeParams& params, const Workers& workers) {
    const std::uint64_t row_bytes = activation_row_bytes(params.format, params.n);
    PLIMSOLL_KERNEL_CHECK(params.format != ActivationFormat::f32, "float32 needs no quantisation");
    const std::uint32_t block =
        params.format == ActivationFormat::q16 ? kQ16Elements : kQ16KElements;
    PLIMSOLL_KERNEL_CHECK(params.n % block == 0, "activation rows are whole blocks");
    const Leaf& table = leaf();
    workers.parallel_for(
        params.n_tokens, rows_for_elements(params.n), [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t t = first; t < last; ++t) {
                const float* input = params.input + t * params.n;
                std::byte* output = static_cast<std::byte*>(params.output) + t * row_bytes;
                if (params.format == ActivationFormat::q16)
                    table.quantize_q16(input, params.n,
                                       reinterpret_cast<ActivationQ16Block*>(output));
                else
                    table.quantize_q16k(input, params.n,
                                        reinterpret_cast<ActivationQ16KBlock*>(output));
            }
        });
}

void matmul(const MatmulParams& params, const Workers& workers) {
    const WeightMatrix& weight = params.weight;
    const std::uint64_t last_row = params.row_last != 0 ? params.row_last : weight.n_out;
    PLIMSOLL_KERNEL_CHECK(last_row <= weight.n_out, "row range past the weight's last row");
    PLIMSOLL_KERNEL_CHECK(params.row_first <= last_row, "row range runs backwards");
    PLIMSOLL_KERNEL_CHECK(weight.n_out % params.n_groups == 0, "groups have equal rows");
    PLIMSOLL_KERNEL_CHECK(weight.n_in % info_of(weight.type).block_elements == 0,
                          "weight rows are whole blocks");
    const auto dot = find_dot(weight.type, params.input_format);
    const std::uint64_t rows_per_group = weight.n_out / params.n_groups;
    workers.parallel_for(
        last_row - params.row_first, rows_per_range(weight.n_in, params.n_tokens),
        [&](std::uint64_t first, std::uint64_t last) {
            const std::uint64_t end = params.row_first + last;
            for (std::uint64_t row = params.row_first + first; row < end;) {
                // A tile never crosses a group, whose rows read another slice of the input.
                const std::uint64_t group_end = (row / rows_per_group + 1) * rows_per_group;
                const std::uint64_t tile_end = std::min({row + kRowTile, end, group_end});
                multiply_rows(params, dot, row, static_cast<std::uint32_t>(tile_end - row));
                row = tile_end;
            }
        });
}

}  // namespace plimsoll::kernels::cpu
