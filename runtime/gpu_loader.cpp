#include "runtime/gpu_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/ops.hpp"
#include "kernels/cuda/synthetic.hpp"
#include "offload/file_stream.hpp"
#include "planner/check.hpp"
#include "planner/units.hpp"
#include "runtime/dense_weights.hpp"
#include "runtime/load_chunks.hpp"
#include "runtime/load_files.hpp"
#include "runtime/synthetic.hpp"

namespace plimsoll {
namespace {

namespace c = kernels::cuda;

/// What one thread or one request reads at once: large enough for a drive's full rate, small enough
/// that the threads of a slot finish together.
constexpr std::uint64_t kReadBytes = 512 * kKiB;
/// Of synthetic weights: they are still in the cache when they are laid in planes.
constexpr std::uint64_t kMadeBytesMax = 16 * kMiB;
/// Slots whose copies are under way while the others are filled.
constexpr std::size_t kCopiesInFlight = 2;

bool is_in_planes(TensorType type) {
    return type == TensorType::q8_0 || type == TensorType::q2_k || type == TensorType::q4_k ||
           type == TensorType::iq2_xxs;
}

Error error_of(const c::DeviceProblem& problem) {
    return {problem.is_lost ? ErrorKind::device_lost : ErrorKind::internal, problem.message};
}

/// The part of `bytes` that starts at a whole sector.
std::span<std::byte> whole_sectors(std::span<std::byte> bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    const std::uint64_t skipped = align_up(address, offload::kSectorBytes) - address;
    return skipped < bytes.size() ? bytes.subspan(skipped) : std::span<std::byte>();
}

/// How ring and scratch are divided: into as many slots as leave each room for the longest row.
struct SlotSizes {
    std::uint32_t n_slots = 0;
    std::uint64_t slot_bytes = 0;
};
SlotSizes slot_sizes(std::uint64_t room_bytes, std::uint64_t row_bytes) {
    for (std::uint32_t n = c::Device::kLoadSlots; n != 0; n /= 2) {
        const std::uint64_t slot_bytes =
            room_bytes / n / offload::kSectorBytes * offload::kSectorBytes;
        if (offload::file_range_bytes_max(slot_bytes) >= row_bytes) return {n, slot_bytes};
    }
    return {};
}

/// Lays what lies in the scratch as in the file where it belongs.
class GpuLoading {
public:
    GpuLoading(c::Device& device, const GpuLoadSource& source, const LoadProgress& progress)
        : device_(device), source_(source), progress_(progress) {}

    Status read(GpuLoadFigures& figures);
    Status make();

private:
    c::Device& device_;
    const GpuLoadSource& source_;
    const LoadProgress& progress_;

    void place(const LoadPiece& piece, const std::byte* scratch);
    Status send(const LoadChunks& loads, const LoadChunk& chunk, std::uint32_t slot,
                std::span<const std::byte> bytes, std::byte* scratch);
    Status stream(const LoadChunks& loads, offload::FileStream& files, const SlotSizes& slots);
};

void GpuLoading::place(const LoadPiece& piece, const std::byte* scratch) {
    const TensorLoad& load = *piece.load;
    if (!is_in_planes(load.tensor->type)) {
        device_.copy_within_device(load.destination + piece.offset_bytes(), scratch,
                                   piece.size_bytes());
        return;
    }
    // Rows and columns of the load: of a tensor of experts it is one of them.
    const kernels::WeightMatrix shape = matrix_at(*load.tensor, nullptr);
    c::repack_weights({.file_rows = scratch,
                       .planes = load.destination,
                       .type = shape.type,
                       .n_in = shape.n_in,
                       .n_out = shape.n_out,
                       .row_first = piece.row_first,
                       .n_rows = piece.n_rows},
                      device_.launch(nullptr));
}

/// From a slot of the ring on.
Status GpuLoading::send(const LoadChunks& loads, const LoadChunk& chunk, std::uint32_t slot,
                        std::span<const std::byte> bytes, std::byte* scratch) {
    for (const LoadPiece& piece : loads.pieces_of(chunk))
        if (Status checked = check_routing_table(*piece.load, piece.offset_bytes(),
                                                 bytes.subspan(piece.at_bytes, piece.size_bytes()));
            !checked)
            return checked;
    device_.copy_slot_to_device(slot, scratch, bytes.data(), bytes.size());
    device_.compute_behind_slot(slot);
    for (const LoadPiece& piece : loads.pieces_of(chunk)) place(piece, scratch + piece.at_bytes);
    device_.mark_slot_used(slot);
    return ok_status();
}

/// The tensor that was being read where `error` happened.
Error error_of(const offload::IoError& error, const LoadChunks& loads, const LoadChunk& chunk) {
    const std::uint64_t at = saturating_sub(error.offset_bytes, chunk.offset_bytes);
    for (const LoadPiece& piece : loads.pieces_of(chunk))
        if (at < piece.at_bytes + piece.size_bytes())
            return read_error(*piece.load,
                              {std::max(error.offset_bytes, chunk.offset_bytes + piece.at_bytes),
                               error.error_number});
    return {ErrorKind::io, offload::describe(error)};
}

Status GpuLoading::stream(const LoadChunks& loads, offload::FileStream& files,
                          const SlotSizes& slots) {
    const std::size_t n_behind = std::min<std::size_t>(kCopiesInFlight, slots.n_slots - 1);
    std::uint64_t done_bytes = 0;
    for (std::size_t at = 0; at < loads.chunks.size(); ++at) {
        const LoadChunk& chunk = loads.chunks[at];
        const auto bytes = files.next();
        if (!bytes) return error_of(bytes.error(), loads, chunk);
        const auto slot = static_cast<std::uint32_t>(at % slots.n_slots);
        // At the same distance from the slot's start as on the host, which keeps the alignment.
        std::byte* scratch = source_.scratch.data() + slot * slots.slot_bytes +
                             chunk.offset_bytes % offload::kSectorBytes;
        if (Status sent = send(loads, chunk, slot, *bytes, scratch); !sent) return sent;
        if (at >= n_behind) {
            const auto copied = static_cast<std::uint32_t>((at - n_behind) % slots.n_slots);
            const c::DeviceProblem problem = device_.wait_for_slot_copy(copied);
            if (!problem.is_none()) return error_of(problem);
            files.release();
        }
        for (const LoadPiece& piece : loads.pieces_of(chunk)) done_bytes += piece.size_bytes();
        progress_(done_bytes, loads.pieces_bytes);
    }
    // The ring is read until the last copy is done.
    const c::DeviceProblem problem = device_.wait();
    return problem.is_none() ? ok_status() : error_of(problem);
}

Status GpuLoading::read(GpuLoadFigures& figures) {
    if (Status opened = LoadFiles().open(source_.loads); !opened) return opened;
    const std::span<std::byte> ring = whole_sectors(source_.ring);
    const SlotSizes slots =
        slot_sizes(std::min(ring.size(), source_.scratch.size()), longest_row_bytes(source_.loads));
    PLIMSOLL_CHECK(
        slots.n_slots != 0,
        fmt::format("rows of {} bytes are loaded through {} pinned and {} on the device",
                    longest_row_bytes(source_.loads), ring.size(), source_.scratch.size()));
    const LoadChunks loads =
        chunks_of(source_.loads, offload::file_range_bytes_max(slots.slot_bytes));
    std::vector<const Model*> models;
    std::vector<std::string> paths;
    std::vector<offload::FileRange> ranges;
    for (const LoadChunk& chunk : loads.chunks) {
        if (models.empty() || models.back() != chunk.model) {
            models.push_back(chunk.model);
            paths.push_back(chunk.model->path);
        }
        ranges.push_back({models.size() - 1, chunk.offset_bytes, chunk.size_bytes});
    }
    offload::IoResult<offload::FileStream> files =
        offload::FileStream::open(paths, std::move(ranges),
                                  {.memory = ring,
                                   .slot_bytes = slots.slot_bytes,
                                   .n_slots = slots.n_slots,
                                   .n_threads = source_.n_threads,
                                   .block_bytes = kReadBytes});
    if (!files) return Error{ErrorKind::io, offload::describe(files.error())};
    figures.how = files->how();
    figures.fallback = files->fallback();
    return stream(loads, *files, slots);
}

/// All on one stream, so one place in the scratch serves everything in turn.
Status GpuLoading::make() {
    const LoadChunks loads =
        chunks_of(source_.loads, std::min<std::uint64_t>(source_.scratch.size(), kMadeBytesMax));
    std::byte* scratch = source_.scratch.data();
    std::uint64_t done_bytes = 0, told_bytes = 0;
    for (std::size_t first = 0, last = 0; first < loads.pieces.size(); first = last) {
        // Pieces of one tensor without a gap are made at once.
        const LoadPiece& piece = loads.pieces[first];
        const Tensor& tensor = *piece.load->tensor;
        std::uint64_t size_bytes = 0;
        const auto follows = [&](const LoadPiece& next) {
            return next.load->tensor == &tensor && next.at_bytes == piece.at_bytes + size_bytes;
        };
        for (; last < loads.pieces.size() && follows(loads.pieces[last]); ++last)
            size_bytes += loads.pieces[last].size_bytes();
        const c::SyntheticRecipe recipe =
            SyntheticTensor(*source_.synthetic_seed, tensor, piece.load->model->hyper.n_experts)
                .recipe();
        const std::uint64_t offset_bytes = piece.load->offset_bytes + piece.offset_bytes();
        c::make_synthetic({.recipe = recipe,
                           .first_unit = offset_bytes / recipe.unit_bytes,
                           .n_units = size_bytes / recipe.unit_bytes,
                           .output = scratch},
                          device_.launch(nullptr));
        for (std::size_t at = first; at < last; ++at)
            place(loads.pieces[at], scratch + loads.pieces[at].at_bytes - piece.at_bytes);
        done_bytes += size_bytes;
        // What is only enqueued is not done.
        if (done_bytes - told_bytes < kGiB && last != loads.pieces.size()) continue;
        if (const c::DeviceProblem problem = device_.wait(); !problem.is_none())
            return error_of(problem);
        told_bytes = done_bytes;
        progress_(done_bytes, loads.pieces_bytes);
    }
    return ok_status();
}

}  // namespace

std::string GpuLoadFigures::text() const {
    const double rate = seconds > 0 ? static_cast<double>(size_bytes) / seconds / 1e9 : 0;
    return fmt::format("{} in {:.2f} s, {:.1f} GB/s ({})", format_bytes(size_bytes), seconds, rate,
                       how);
}

Result<GpuLoadFigures> load_to_gpu(c::Device& device, const GpuLoadSource& source,
                                   const LoadProgress& progress) {
    const auto start = std::chrono::steady_clock::now();
    GpuLoadFigures figures{.size_bytes = 0, .seconds = 0, .how = "made on the device"};
    for (const TensorLoad& load : source.loads) figures.size_bytes += load.size_bytes;
    GpuLoading loading(device, source, progress);
    const Status loaded = source.synthetic_seed ? loading.make() : loading.read(figures);
    if (!loaded) {
        // Copies from the ring, and into what the caller may give back, are not left behind.
        (void)device.wait();
        return loaded.error();
    }
    for (const Fp16Fill& fill : source.fp16_fills)
        c::dequantize_f16({fill.weight, fill.destination}, device.launch(nullptr));
    if (const c::DeviceProblem problem = device.wait(); !problem.is_none())
        return error_of(problem);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    figures.seconds = taken.count();
    return figures;
}

}  // namespace plimsoll
