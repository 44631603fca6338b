#include "runtime/gpu_loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/ops.hpp"
#include "kernels/workers.hpp"
#include "planner/check.hpp"
#include "planner/units.hpp"
#include "runtime/dense_weights.hpp"
#include "runtime/load_files.hpp"
#include "runtime/synthetic.hpp"

namespace plimsoll {
namespace {

namespace c = kernels::cuda;

/// What one of the reading threads takes at a time of a slot.
constexpr std::uint64_t kReadBytes = kMiB;

/// Rows of a matrix, or bytes of a tensor that is no matrix of weights, that pass a slot at once.
struct Piece {
    const TensorLoad* load = nullptr;
    std::uint64_t offset_bytes = 0;  // in the load
    std::uint64_t size_bytes = 0;
    bool is_repacked = false;
    std::uint32_t row_first = 0;
    std::uint32_t n_rows = 0;
};

bool is_in_planes(TensorType type) {
    return type == TensorType::q8_0 || type == TensorType::q2_k || type == TensorType::q4_k ||
           type == TensorType::iq2_xxs;
}

/// The rows and columns that the load has: of a tensor of experts it is one of them.
kernels::WeightMatrix shape_of(const TensorLoad& load) { return matrix_at(*load.tensor, nullptr); }

void add_pieces(const TensorLoad& load, std::uint64_t slot_bytes, std::vector<Piece>& pieces) {
    if (!is_in_planes(load.tensor->type)) {
        for (std::uint64_t at = 0; at < load.size_bytes; at += slot_bytes)
            pieces.push_back({.load = &load,
                              .offset_bytes = at,
                              .size_bytes = std::min(slot_bytes, load.size_bytes - at)});
        return;
    }
    const kernels::WeightMatrix shape = shape_of(load);
    const std::uint64_t row_bytes = kernels::weight_row_bytes(shape.type, shape.n_in);
    const auto rows_at_once = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(slot_bytes / row_bytes, 1, shape.n_out));
    PLIMSOLL_CHECK(row_bytes <= slot_bytes,
                   fmt::format("{}: a row of {} bytes is loaded through slots of {}",
                               load.tensor->name, row_bytes, slot_bytes));
    for (std::uint32_t row = 0; row < shape.n_out; row += rows_at_once) {
        const std::uint32_t n_rows = std::min(rows_at_once, shape.n_out - row);
        pieces.push_back({&load, row * row_bytes, n_rows * row_bytes, true, row, n_rows});
    }
}

/// Fills slots of the ring and sends them on.
class GpuLoading {
public:
    GpuLoading(c::Device& device, const GpuLoadSource& source)
        : device_(device),
          source_(source),
          workers_(source.n_threads),
          slot_bytes_(std::min(source.ring.size(), source.scratch.size()) / c::Device::kLoadSlots /
                      256 * 256) {}

    Status run(const LoadProgress& progress);

private:
    c::Device& device_;
    const GpuLoadSource& source_;
    kernels::Workers workers_;
    std::uint64_t slot_bytes_;
    LoadFiles files_;

    Status fill(const Piece& piece, std::span<std::byte> out) const;
    void send(const Piece& piece, std::uint32_t slot, const std::byte* from);
};

/// Reads a piece, or makes it.
Status GpuLoading::fill(const Piece& piece, std::span<std::byte> out) const {
    std::mutex mutex;
    Status status = ok_status();
    workers_.parallel_for(out.size(), kReadBytes, [&](std::uint64_t first, std::uint64_t last) {
        const std::span<std::byte> part = out.subspan(first, last - first);
        Status done = ok_status();
        if (source_.synthetic_seed) {
            const SyntheticTensor tensor(*source_.synthetic_seed, *piece.load->tensor,
                                         piece.load->model->hyper.n_experts);
            tensor.fill(piece.load->offset_bytes + piece.offset_bytes + first, part);
        } else {
            done = files_.read(*piece.load, piece.offset_bytes + first, part);
        }
        if (done) return;
        const std::lock_guard lock(mutex);
        if (status) status = done;
    });
    if (!status) return status;
    return check_routing_table(*piece.load, piece.offset_bytes, out);
}

void GpuLoading::send(const Piece& piece, std::uint32_t slot, const std::byte* from) {
    if (!piece.is_repacked) {
        device_.copy_slot_to_device(slot, piece.load->destination + piece.offset_bytes, from,
                                    piece.size_bytes);
        return;
    }
    std::byte* scratch = source_.scratch.data() + slot * slot_bytes_;
    device_.copy_slot_to_device(slot, scratch, from, piece.size_bytes);
    device_.compute_behind_slot(slot);
    const kernels::WeightMatrix shape = shape_of(*piece.load);
    c::repack_weights({.file_rows = scratch,
                       .planes = piece.load->destination,
                       .type = shape.type,
                       .n_in = shape.n_in,
                       .n_out = shape.n_out,
                       .row_first = piece.row_first,
                       .n_rows = piece.n_rows},
                      device_.launch(nullptr));
    device_.mark_slot_used(slot);
}

Status GpuLoading::run(const LoadProgress& progress) {
    if (!source_.synthetic_seed)
        if (Status opened = files_.open(source_.loads); !opened) return opened;
    std::vector<Piece> pieces;
    std::uint64_t total_bytes = 0;
    for (const TensorLoad& load : source_.loads) {
        add_pieces(load, slot_bytes_, pieces);
        total_bytes += load.size_bytes;
    }
    std::uint64_t done_bytes = 0;
    for (std::size_t at = 0; at < pieces.size(); ++at) {
        const auto slot = static_cast<std::uint32_t>(at % c::Device::kLoadSlots);
        const c::DeviceProblem problem = device_.wait_for_slot_copy(slot);
        if (!problem.is_none())
            return Error{problem.is_lost ? ErrorKind::device_lost : ErrorKind::internal,
                         problem.message};
        std::byte* ring = source_.ring.data() + slot * slot_bytes_;
        if (Status filled = fill(pieces[at], {ring, pieces[at].size_bytes}); !filled) return filled;
        send(pieces[at], slot, ring);
        done_bytes += pieces[at].size_bytes;
        progress(done_bytes, total_bytes);
    }
    return ok_status();
}

}  // namespace

Status load_to_gpu(c::Device& device, const GpuLoadSource& source, const LoadProgress& progress) {
    if (Status loaded = GpuLoading(device, source).run(progress); !loaded) return loaded;
    for (std::uint32_t slot = 0; slot < c::Device::kLoadSlots; ++slot)
        device.compute_behind_slot(slot);
    for (const Fp16Fill& fill : source.fp16_fills)
        c::dequantize_f16({fill.weight, fill.destination}, device.launch(nullptr));
    const c::DeviceProblem problem = device.wait();
    if (problem.is_none()) return ok_status();
    return Error{problem.is_lost ? ErrorKind::device_lost : ErrorKind::internal, problem.message};
}

}  // namespace plimsoll
