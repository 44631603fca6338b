#include "runtime/load_chunks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "planner/check.hpp"
#include "planner/tensor_type.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// Reading on over a gap of this size costs less than another read.
constexpr std::uint64_t kGapBytesMax = 64 * kKiB;
/// The end of a chunk that is not worth splitting a load for.
constexpr std::uint64_t kRestBytesMin = 256 * kKiB;

std::uint64_t row_bytes_of(const Tensor& tensor) {
    return storage_bytes(tensor.type, tensor.dims.front());
}

/// Whether `chunk`, the last one, can go on at a place of its model's file.
bool goes_on(const LoadChunk& chunk, const Model* model, std::uint64_t offset_bytes) {
    const std::uint64_t end = chunk.offset_bytes + chunk.size_bytes;
    return chunk.model == model && offset_bytes >= end && offset_bytes - end <= kGapBytesMax;
}

/// Adds as many rows of `piece` as the last chunk has room for, or those that start a new one.
/// Returns how many.
std::uint32_t add_piece(LoadChunks& out, std::uint64_t chunk_bytes, LoadPiece piece) {
    const Model* model = piece.load->model;
    const std::uint64_t at = piece.load->file_offset_bytes() + piece.offset_bytes();
    std::uint64_t room = 0;
    if (!out.chunks.empty() && goes_on(out.chunks.back(), model, at))
        room = saturating_sub(chunk_bytes, at - out.chunks.back().offset_bytes);
    if (room < piece.row_bytes || room < std::min(piece.size_bytes(), kRestBytesMin)) {
        out.chunks.push_back({model, at, 0, out.pieces.size(), out.pieces.size()});
        room = chunk_bytes;
    }
    LoadChunk& chunk = out.chunks.back();
    piece.n_rows =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.n_rows, room / piece.row_bytes));
    piece.at_bytes = at - chunk.offset_bytes;
    chunk.size_bytes = piece.at_bytes + piece.size_bytes();
    out.pieces.push_back(piece);
    chunk.last_piece = out.pieces.size();
    return piece.n_rows;
}

}  // namespace

std::uint64_t longest_row_bytes(std::span<const TensorLoad> loads) {
    std::uint64_t longest = 0;
    for (const TensorLoad& load : loads) longest = std::max(longest, row_bytes_of(*load.tensor));
    return longest;
}

LoadChunks chunks_of(std::span<const TensorLoad> loads, std::uint64_t chunk_bytes) {
    std::vector<const TensorLoad*> sorted;
    for (const TensorLoad& load : loads) sorted.push_back(&load);
    const auto place = [](const TensorLoad* load) {
        return std::tuple(load->model->kind, load->file_offset_bytes(), load->destination);
    };
    std::sort(sorted.begin(), sorted.end(),
              [&](const TensorLoad* a, const TensorLoad* b) { return place(a) < place(b); });

    LoadChunks out;
    for (const TensorLoad* load : sorted) {
        const std::uint64_t row_bytes = row_bytes_of(*load->tensor);
        PLIMSOLL_CHECK(row_bytes <= chunk_bytes,
                       fmt::format("{}: a row of {} bytes is loaded in chunks of {}",
                                   load->tensor->name, row_bytes, chunk_bytes));
        PLIMSOLL_CHECK(load->size_bytes % row_bytes == 0,
                       fmt::format("{}: {} bytes are loaded, of rows of {}", load->tensor->name,
                                   load->size_bytes, row_bytes));
        const std::uint64_t n_rows = ceil_div(load->size_bytes, row_bytes);
        for (std::uint64_t row = 0; row < n_rows;)
            row += add_piece(out, chunk_bytes,
                             {.load = load,
                              .row_first = static_cast<std::uint32_t>(row),
                              .n_rows = static_cast<std::uint32_t>(n_rows - row),
                              .row_bytes = row_bytes});
        out.pieces_bytes += load->size_bytes;
    }
    return out;
}

}  // namespace plimsoll
