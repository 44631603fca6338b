#include <algorithm>

#include "planner/schedule.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

constexpr std::uint64_t kFloatBytes = 4;

}  // namespace

std::uint64_t quantized_row_bytes(TensorType weight, std::uint64_t n) {
    switch (info_of(weight).block_elements) {
        case 32: return n / 32 * (4 + 32 * 2);
        case 256: return n / 256 * (4 + 256 * 2 + 16 * 4);
        default: return 0;
    }
}

std::uint64_t expert_mid_bytes(std::uint64_t n_assignments, std::uint64_t ff_dim, TensorType down,
                               bool quantized_activations) {
    const std::uint64_t quantized = quantized_activations ? quantized_row_bytes(down, ff_dim) : 0;
    return n_assignments * (ff_dim * kFloatBytes + quantized);
}

std::uint64_t indexer_scores_bytes(std::uint64_t tokens, std::uint64_t top_k) {
    constexpr std::uint64_t kTokensAtOnce = 64;
    constexpr std::uint64_t kRowTile = 1024;
    const std::uint64_t rows = std::min(tokens, kTokensAtOnce);
    return rows * (kRowTile + top_k) * kFloatBytes;
}

namespace gpu {

std::uint64_t expert_mid_bytes(std::uint64_t n_assignments, std::uint64_t hidden,
                               std::uint64_t ff_dim, bool is_shared, bool precise) {
    const std::uint64_t inner = ff_dim * (precise ? kFloatBytes : 2);
    return n_assignments * (inner + (is_shared ? 0 : hidden * kFloatBytes));
}

std::uint64_t expert_tiles_bytes(std::uint64_t n_assignments, std::uint64_t n_experts) {
    constexpr std::uint64_t kTileRows = 64;
    const std::uint64_t tiles = n_assignments / kTileRows + std::min(n_assignments, n_experts);
    return (1 + 2 * tiles) * 4;
}

std::uint64_t indexer_scores_bytes(std::uint64_t tokens, std::uint64_t rows) {
    constexpr std::uint64_t kScratchBytes = 32 * kMiB;
    const std::uint64_t row_bytes = std::max<std::uint64_t>(rows, 1) * kFloatBytes;
    const std::uint64_t at_once =
        std::clamp<std::uint64_t>(kScratchBytes / row_bytes, 1, std::max<std::uint64_t>(tokens, 1));
    return at_once * row_bytes;
}

std::uint64_t attn_partials_bytes(std::uint64_t n_heads, std::uint64_t head_dim,
                                  std::uint64_t rows_max) {
    constexpr std::uint64_t kRowsASplit = 32;
    constexpr std::uint64_t kSplitsMax = 32;
    constexpr std::uint64_t kHeadsATile = 16;
    const std::uint64_t splits =
        std::clamp<std::uint64_t>(ceil_div(rows_max, kRowsASplit), 1, kSplitsMax);
    return splits * align_up(n_heads, kHeadsATile) * (head_dim + 2) * kFloatBytes;
}

std::uint64_t hc_sums_bytes(std::uint64_t n_streams) {
    // Of each slice the coefficients' products, and those of the streams with one another.
    constexpr std::uint64_t kSlicesMax = 128;
    const std::uint64_t products = n_streams * (n_streams + 2) + n_streams * (n_streams + 1) / 2;
    return kSlicesMax * products * kFloatBytes;
}

}  // namespace gpu
}  // namespace plimsoll
