#include <cstring>

#include "kernels/check.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {

void embed(const EmbedParams& params, const Workers& workers) {
    const std::uint64_t hidden = params.table.n_in;
    workers.parallel_for(
        params.n_tokens, rows_for_elements(hidden * params.n_streams),
        [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t t = first; t < last; ++t) {
                const auto id = static_cast<std::uint64_t>(params.ids[t]);
                PLIMSOLL_KERNEL_CHECK(id < params.table.n_out, "token id outside the vocabulary");
                float* streams = params.streams + t * params.n_streams * hidden;
                decode_row(params.table, id, streams);
                for (std::uint64_t s = 1; s < params.n_streams; ++s)
                    std::memcpy(streams + s * hidden, streams, hidden * sizeof(float));
            }
        });
}

}  // namespace plimsoll::kernels::cpu
