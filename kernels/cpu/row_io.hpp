#pragma once

#include <cstdint>

#include "kernels/kv_rows.hpp"

namespace plimsoll::kernels::cpu {

/// One row of a region by slot, in either format. `row` [head_dim] or [dim] float32.
void store_kv_row(const KvRows& region, std::uint64_t slot, const float* row);
void load_kv_row(const KvRows& region, std::uint64_t slot, float* row);
void store_indexer_row(const IndexerRows& region, std::uint64_t slot, const float* row);
void load_indexer_row(const IndexerRows& region, std::uint64_t slot, float* row);

/// The row where it is already float32, else decoded into `decoded`.
[[nodiscard]] const float* kv_row(const KvRows& region, std::uint64_t slot, float* decoded);
[[nodiscard]] const float* indexer_row(const IndexerRows& region, std::uint64_t slot,
                                       float* decoded);

/// What cache rounding leaves of one KV row in a region of `format`. In place.
void round_kv_row(float* row, std::uint32_t head_dim, std::uint32_t rope_dim, KvFormat format,
                  CacheRounding rounding);

}  // namespace plimsoll::kernels::cpu
