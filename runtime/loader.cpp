#include "runtime/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "planner/units.hpp"
#include "runtime/file_reader.hpp"

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

Error read_error(const Piece& piece, const ShortRead& failure) {
    const TensorLoad& load = *piece.load;
    const std::string reason =
        failure.error_number == 0 ? "the file ends there" : std::strerror(failure.error_number);
    return {ErrorKind::io, fmt::format("{}: {} cannot be read at byte {} ({} of its {} bytes): {}",
                                       load.model->path, load.tensor->name, failure.offset_bytes,
                                       failure.offset_bytes - load.tensor->file_offset_bytes,
                                       load.tensor->size_bytes, reason)};
}

/// The files that loads come from, opened.
class Files {
public:
    Status open(std::span<const TensorLoad> loads) {
        for (const TensorLoad& load : loads) {
            if (files_.contains(load.model)) continue;
            Result<FileReader> file = FileReader::open(load.model->path);
            if (!file) return file.error();
            const std::uint64_t planned_bytes = load.model->file_bytes;
            if (planned_bytes != 0 && file->size_bytes() > planned_bytes)
                return Error{
                    ErrorKind::bad_file,
                    fmt::format("{} has {} bytes and had {} when the plan was made: plan again",
                                load.model->path, format_count(file->size_bytes()),
                                format_count(planned_bytes))};
            files_.emplace(load.model, std::move(*file));
        }
        return ok_status();
    }
    [[nodiscard]] const FileReader& of(const Model* model) const { return files_.at(model); }

private:
    std::map<const Model*, FileReader> files_;
};

/// What the threads of a load share.
struct Loading {
    const Files& files;
    const std::vector<Piece>& pieces;
    std::atomic<std::size_t> next{0};
    std::atomic<std::uint64_t> done_bytes{0};
    std::mutex mutex;
    std::optional<Error> error;  // the first one; guarded by `mutex`

    /// Reads pieces until there are no more. `after` runs behind each.
    template <class After>
    void read(const After& after) {
        for (;;) {
            const std::size_t index = next.fetch_add(1);
            if (index >= pieces.size()) return;
            const Piece& piece = pieces[index];
            ShortRead failure;
            const std::span<std::byte> out(piece.load->destination + piece.offset_bytes,
                                           piece.size_bytes);
            const std::uint64_t at = piece.load->file_offset_bytes() + piece.offset_bytes;
            if (!files.of(piece.load->model).read(at, out, failure)) {
                const std::lock_guard lock(mutex);
                if (!error) error = read_error(piece, failure);
                next = pieces.size();
                return;
            }
            after(done_bytes += piece.size_bytes);
        }
    }
};

Status check_routing_table(const TensorLoad& load) {
    const auto* ids = reinterpret_cast<const std::int32_t*>(load.destination);
    const std::uint64_t n_experts = load.model->hyper.n_experts;
    for (std::uint64_t at = 0; at < load.size_bytes / sizeof(std::int32_t); ++at)
        if (ids[at] < 0 || static_cast<std::uint64_t>(ids[at]) >= n_experts)
            return Error{ErrorKind::bad_file,
                         fmt::format("{}: {} names expert {} at entry {}, and there are {}",
                                     load.model->path, load.tensor->name, ids[at], at, n_experts)};
    return ok_status();
}

}  // namespace

Status load_tensors(std::span<const TensorLoad> loads, std::uint32_t n_threads,
                    const LoadProgress& progress) {
    Files files;
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
    for (const TensorLoad& load : loads)
        if (load.tensor->role == TensorRole::ffn_gate_tid2eid)
            if (Status checked = check_routing_table(load); !checked) return checked;
    return ok_status();
}

}  // namespace plimsoll
