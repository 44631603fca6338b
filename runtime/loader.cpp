#include "runtime/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "planner/units.hpp"
#include "runtime/load_files.hpp"

namespace plimsoll {
namespace {

/// A stretch of a load that one thread reads at once: large enough for a drive's full rate, small
/// enough that the threads finish together.
constexpr std::uint64_t kPieceBytes = 8 * kMiB;

struct Piece {
    const TensorLoad* load = nullptr;
    std::uint64_t offset_bytes = 0;  // in the load
    std::uint64_t size_bytes = 0;
};

std::vector<Piece> pieces_of(std::span<const TensorLoad> loads) {
    std::vector<Piece> pieces;
    for (const TensorLoad& load : loads)
        for (std::uint64_t at = 0; at < load.size_bytes; at += kPieceBytes)
            pieces.push_back({&load, at, std::min(kPieceBytes, load.size_bytes - at)});
    // In file order, so that a disk which reads ahead is of use.
    const auto order = [](const Piece& piece) {
        return std::pair(piece.load->model->kind,
                         piece.load->file_offset_bytes() + piece.offset_bytes);
    };
    std::sort(pieces.begin(), pieces.end(),
              [&](const Piece& a, const Piece& b) { return order(a) < order(b); });
    return pieces;
}

/// What the threads of a load share.
struct Loading {
    const LoadFiles& files;
    const std::vector<Piece>& pieces;
    std::atomic<std::size_t> next{0};
    std::atomic<std::uint64_t> done_bytes{0};
    std::mutex mutex;
    // Guarded by `mutex`: of several failures the one nearest to the file's start, since behind the
    // end of a file every piece fails.
    std::optional<Error> error;
    std::size_t error_piece = 0;

    /// Reads pieces until there are no more. `after` runs behind each.
    template <class After>
    void read(const After& after) {
        for (;;) {
            const std::size_t index = next.fetch_add(1);
            if (index >= pieces.size()) return;
            const Piece& piece = pieces[index];
            const std::span<std::byte> out(piece.load->destination + piece.offset_bytes,
                                           piece.size_bytes);
            Status done = files.read(*piece.load, piece.offset_bytes, out);
            if (done) done = check_routing_table(*piece.load, piece.offset_bytes, out);
            if (!done) {
                const std::lock_guard lock(mutex);
                if (!error || index < error_piece) {
                    error = done.error();
                    error_piece = index;
                }
                next = pieces.size();
                return;
            }
            after(done_bytes += piece.size_bytes);
        }
    }
};

}  // namespace

Status load_tensors(std::span<const TensorLoad> loads, std::uint32_t n_threads,
                    const LoadProgress& progress) {
    LoadFiles files;
    if (Status opened = files.open(loads); !opened) return opened;
    std::uint64_t total_bytes = 0;
    for (const TensorLoad& load : loads) total_bytes += load.size_bytes;
    const std::vector<Piece> pieces = pieces_of(loads);
    Loading loading{files, pieces};
    std::vector<std::thread> helpers;
    for (std::uint32_t index = 1; index < n_threads; ++index)
        helpers.emplace_back([&] { loading.read([](std::uint64_t) {}); });
    loading.read([&](std::uint64_t done_bytes) { progress(done_bytes, total_bytes); });
    for (std::thread& helper : helpers) helper.join();
    if (loading.error) return *loading.error;
    progress(total_bytes, total_bytes);
    return ok_status();
}

}  // namespace plimsoll
