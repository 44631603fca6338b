#include <cmath>

#include "kernels/cpu/leaf.hpp"
#include "kernels/cpu/rms.hpp"
#include "kernels/cpu/rotation.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {

void rms_norm(const RmsNormParams& params, const Workers& workers) {
    workers.parallel_for(params.n_rows, rows_for_elements(params.dim),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i)
                                 rms_row(params.input + i * params.dim, params.weight, params.dim,
                                         params.epsilon, params.output + i * params.dim);
                         });
}

void rope(const RopeOpParams& params, const Workers& workers) {
    const std::uint64_t stride = std::uint64_t{params.n_heads} * params.head_dim;
    workers.parallel_for(
        params.n_tokens, rows_for_elements(stride), [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t t = first; t < last; ++t) {
                const Rotation rotation =
                    make_rotation(params.rope, params.first_position + t, params.inverse);
                for (std::uint64_t h = 0; h < params.n_heads; ++h)
                    rotate_tail(params.vectors + t * stride + h * params.head_dim, params.head_dim,
                                rotation);
            }
        });
}

}  // namespace plimsoll::kernels::cpu
