#include "runtime/load_chunks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// Tensors one behind the other in a file, and loads of some of their parts in any order.
struct RandomLoads {
    explicit RandomLoads(std::uint64_t seed) {
        std::mt19937_64 random(seed);
        models[1].kind = ModelKind::mtp;
        const TensorType types[] = {TensorType::f32, TensorType::q8_0, TensorType::q2_k,
                                    TensorType::iq2_xxs};
        for (Model& model : models) {
            std::uint64_t at = 1000 + random() % 100;
            for (int index = 0; index < 12; ++index) {
                const TensorType type = types[random() % std::size(types)];
                const std::uint64_t n_rows = 1 + random() % 200, n_experts = 1 + random() % 3;
                Tensor tensor{.name = "t", .type = type, .dims = {256, n_rows, n_experts}};
                tensor.file_offset_bytes = align_up(at, 32);
                tensor.size_bytes = storage_bytes(type, 256 * n_rows * n_experts);
                at = tensor.file_offset_bytes + tensor.size_bytes;
                model.tensors.push_back(tensor);
            }
        }
        for (const Model& model : models)
            for (const Tensor& tensor : model.tensors) {
                const std::uint64_t part_bytes = tensor.size_bytes / tensor.dims[2];
                for (std::uint64_t part = 0; part < tensor.dims[2]; ++part)
                    if (random() % 5 != 0)
                        loads.push_back({&model, &tensor, part * part_bytes, part_bytes, nullptr});
            }
        std::shuffle(loads.begin(), loads.end(), random);
    }
    Model models[2];
    std::vector<TensorLoad> loads;
};

TEST(LoadChunks, HoldEveryRowOnceInFileOrderWithinTheirSize) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const RandomLoads random(seed);
        const std::uint64_t chunk_bytes =
            std::max(longest_row_bytes(random.loads), seed * seed * 40);
        const LoadChunks chunks = chunks_of(random.loads, chunk_bytes);
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::map<const TensorLoad*, std::uint64_t> rows_seen;
        std::size_t next_piece = 0;
        for (const LoadChunk& chunk : chunks.chunks) {
            ASSERT_EQ(chunk.first_piece, next_piece);
            next_piece = chunk.last_piece;
            ASSERT_LE(chunk.size_bytes, chunk_bytes);
            std::uint64_t end_bytes = 0;
            for (const LoadPiece& piece : chunks.pieces_of(chunk)) {
                ASSERT_EQ(piece.load->model, chunk.model);
                ASSERT_EQ(chunk.offset_bytes + piece.at_bytes,
                          piece.load->file_offset_bytes() + piece.offset_bytes());
                ASSERT_GE(piece.at_bytes, end_bytes);
                ASSERT_EQ(piece.row_first, rows_seen[piece.load]);
                rows_seen[piece.load] += piece.n_rows;
                end_bytes = piece.at_bytes + piece.size_bytes();
            }
            ASSERT_EQ(end_bytes, chunk.size_bytes);
        }
        ASSERT_EQ(next_piece, chunks.pieces.size());
        std::uint64_t total_bytes = 0;
        for (const TensorLoad& load : random.loads) {
            ASSERT_EQ(rows_seen[&load] * storage_bytes(load.tensor->type, 256), load.size_bytes);
            total_bytes += load.size_bytes;
        }
        ASSERT_EQ(chunks.pieces_bytes, total_bytes);
    }
}

TEST(LoadChunks, AreNearlyFullWhereTheFileHasNoLargeGaps) {
    const RandomLoads random(3);
    std::vector<TensorLoad> loads;
    for (const Tensor& tensor : random.models[0].tensors)
        loads.push_back({&random.models[0], &tensor, 0, tensor.size_bytes, nullptr});
    const std::uint64_t chunk_bytes = 512 * kKiB;
    const LoadChunks chunks = chunks_of(loads, chunk_bytes);
    for (std::size_t at = 0; at + 1 < chunks.chunks.size(); ++at)
        EXPECT_GT(chunks.chunks[at].size_bytes, chunk_bytes / 2 - kKiB) << at;
}

}  // namespace
}  // namespace plimsoll
