#include "kernels/cache_rounding.hpp"
#include "kernels/check.hpp"
#include "kernels/cpu/row_io.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Rows that would be overwritten by later ones of the same call are skipped, so that no two
/// threads write a slot.
std::uint64_t first_kept(std::uint64_t n_rows, std::uint64_t row_capacity) {
    return n_rows > row_capacity ? n_rows - row_capacity : 0;
}

}  // namespace

void round_kv_rows(const RoundKvParams& params, const Workers& workers) {
    workers.parallel_for(params.n_rows, rows_for_elements(params.head_dim),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i)
                                 round_kv_row(params.rows + i * params.head_dim, params.head_dim,
                                              params.rope_dim, params.format, params.rounding);
                         });
}

void round_indexer_rows(const RoundIndexerParams& params, const Workers& workers) {
    if (params.rounding == CacheRounding::off) return;
    workers.parallel_for(params.n_rows, rows_for_elements(params.dim),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first; i < last; ++i) {
                                 hadamard(params.rows + i * params.dim, params.dim);
                                 fp4_round(params.rows + i * params.dim, params.dim);
                             }
                         });
}

void store_kv_rows(const StoreKvParams& params, const Workers& workers) {
    const std::uint64_t skipped = first_kept(params.n_rows, params.region.row_capacity);
    workers.parallel_for(params.n_rows - skipped, rows_for_elements(params.region.head_dim),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first + skipped; i < last + skipped; ++i)
                                 store_kv_row(
                                     params.region,
                                     (params.first_position + i) % params.region.row_capacity,
                                     params.rows + i * params.region.head_dim);
                         });
}

void store_indexer_rows(const StoreIndexerParams& params, const Workers& workers) {
    const std::uint64_t skipped = first_kept(params.n_rows, params.region.row_capacity);
    workers.parallel_for(params.n_rows - skipped, rows_for_elements(params.region.dim),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t i = first + skipped; i < last + skipped; ++i)
                                 store_indexer_row(
                                     params.region,
                                     (params.first_row + i) % params.region.row_capacity,
                                     params.rows + i * params.region.dim);
                         });
}

void load_kv_rows(const LoadKvParams& params, const Workers& workers) {
    workers.parallel_for(
        params.n_rows, rows_for_elements(params.region.head_dim),
        [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t i = first; i < last; ++i)
                load_kv_row(params.region, (params.first_position + i) % params.region.row_capacity,
                            params.rows + i * params.region.head_dim);
        });
}

void load_indexer_rows(const LoadIndexerParams& params, const Workers& workers) {
    workers.parallel_for(
        params.n_rows, rows_for_elements(params.region.dim),
        [&](std::uint64_t first, std::uint64_t last) {
            for (std::uint64_t i = first; i < last; ++i)
                load_indexer_row(params.region, (params.first_row + i) % params.region.row_capacity,
                                 params.rows + i * params.region.dim);
        });
}

}  // namespace plimsoll::kernels::cpu
