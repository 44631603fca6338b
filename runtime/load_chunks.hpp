#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/tensor_load.hpp"

namespace plimsoll {

/// Rows of a load that are moved together.
struct LoadPiece {
    const TensorLoad* load = nullptr;
    std::uint32_t row_first = 0;
    std::uint32_t n_rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t at_bytes = 0;  // in the chunk

    [[nodiscard]] std::uint64_t offset_bytes() const { return row_first * row_bytes; }  // in load
    [[nodiscard]] std::uint64_t size_bytes() const { return n_rows * row_bytes; }
};

/// A stretch of one file and the pieces in it, [first_piece, last_piece).
struct LoadChunk {
    const Model* model = nullptr;
    std::uint64_t offset_bytes = 0;  // in the file
    std::uint64_t size_bytes = 0;
    std::size_t first_piece = 0;
    std::size_t last_piece = 0;
};

struct LoadChunks {
    std::vector<LoadPiece> pieces;
    std::vector<LoadChunk> chunks;
    std::uint64_t pieces_bytes = 0;

    [[nodiscard]] std::span<const LoadPiece> pieces_of(const LoadChunk& chunk) const {
        return std::span(pieces).subspan(chunk.first_piece, chunk.last_piece - chunk.first_piece);
    }
};

/// Bytes of the longest row among the loads.
[[nodiscard]] std::uint64_t longest_row_bytes(std::span<const TensorLoad> loads);

/// The loads, each some whole rows of its tensor, in file order and in chunks of at most
/// `chunk_bytes`, which the longest row does not exceed. A chunk holds what lies between its
/// pieces, where that is little.
[[nodiscard]] LoadChunks chunks_of(std::span<const TensorLoad> loads, std::uint64_t chunk_bytes);

}  // namespace plimsoll
