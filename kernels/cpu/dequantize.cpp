#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/half.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Elements decoded to the stack before they are narrowed: a multiple of every block.
constexpr std::uint32_t kNarrowStep = 256;

void narrow_row(const WeightMatrix& weight, std::uint64_t row, std::uint16_t* out) {
    float values[kNarrowStep];
    for (std::uint32_t first = 0; first < weight.n_in; first += kNarrowStep) {
        const std::uint32_t n = std::min(kNarrowStep, weight.n_in - first);
        leaf().decode(weight.type, weight_row(weight, row), first, n, values);
        for (std::uint32_t i = 0; i < n; ++i) out[first + i] = f16_from_f32(values[i]);
    }
}

void check_rows(const DequantizeParams& params) {
    PLIMSOLL_KERNEL_CHECK(params.row_first <= params.row_last, "row range runs backwards");
    PLIMSOLL_KERNEL_CHECK(params.row_last <= params.weight.n_out,
                          "row range past the weight's last row");
}

}  // namespace

void dequantize_f32(const DequantizeParams& params, const Workers& workers) {
    check_rows(params);
    workers.parallel_for(params.row_last - params.row_first, rows_for_elements(params.weight.n_in),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i)
                                 decode_row(
                                     params.weight, params.row_first + i,
                                     static_cast<float*>(params.output) + i * params.weight.n_in);
                         });
}

void dequantize_f16(const DequantizeParams& params, const Workers& workers) {
    check_rows(params);
    workers.parallel_for(
        params.row_last - params.row_first, rows_for_elements(params.weight.n_in),
        [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t i = first; i < last; ++i)
                narrow_row(params.weight, params.row_first + i,
                           static_cast<std::uint16_t*>(params.output) + i * params.weight.n_in);
        });
}

}  // namespace plimsoll::kernels::cpu
