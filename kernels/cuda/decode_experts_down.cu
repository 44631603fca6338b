#include <algorithm>

#include "kernels/cuda/decode_experts.cuh"
#include "kernels/cuda/hc_tail.cuh"

namespace plimsoll::kernels::cuda {
namespace {

// Bound by the weights' bytes: with six Q2_K experts of 4096 x 2048 and a shared one of Q8_0, 25
// MB. One block of 16 warps a multiprocessor, with all experts' products of its 32 output rows: it
// quantises every expert's inner row, which smaller blocks would do more often.
/// Shared memory of a block: tables of IQ2_XXS, inner rows of the routed experts, that of the
/// shared one, the ring, first the routed experts' and then the shared one's, partial sums of both.
struct DownMemory {
    std::uint32_t tables_bytes;  // their size
    std::uint32_t row_bytes;     // of a routed expert; the first one begins behind the tables
    std::uint32_t shared_row_bytes;
    std::uint32_t ring_bytes;
    std::uint32_t partials_bytes;
    std::uint32_t shared_partials_bytes;
    std::uint32_t size_bytes;
};
DownMemory down_memory(const DecodeExpertsParams& params, std::uint32_t rows_max) {
    DownMemory memory{};
    std::uint32_t partials = 0, shared_partials = 0, shared_row = 0, ring = 0;
    with_format(params.down.type, [&](auto format) {
        using Format = decltype(format);
        memory.row_bytes = shared_row_layout<Format>(params.ff_dim).size_bytes;
        partials =
            partials_of<Format>(rows_max, params.ff_dim / Format::kPiece, params.n_experts_used);
        memory.tables_bytes = std::max(memory.tables_bytes, kTablesBytes<Format>);
        ring = std::max(ring, kRingBytesOfBlock<Format>);
    });
    with_format(params.shared_down.type, [&](auto format) {
        using Format = decltype(format);
        shared_row = shared_row_layout<Format>(params.ff_dim).size_bytes;
        shared_partials = partials_of<Format>(rows_max, params.ff_dim / Format::kPiece, 1);
        memory.tables_bytes = std::max(memory.tables_bytes, kTablesBytes<Format>);
        ring = std::max(ring, kRingBytesOfBlock<Format>);
    });
    memory.shared_row_bytes = memory.tables_bytes + memory.row_bytes * params.n_experts_used;
    memory.ring_bytes = (memory.shared_row_bytes + shared_row + 15) / 16 * 16;
    memory.partials_bytes = memory.ring_bytes + ring;
    memory.shared_partials_bytes = memory.partials_bytes + 4 * partials;
    memory.size_bytes = memory.shared_partials_bytes + 4 * shared_partials;
    return memory;
}

struct Down {
    Experts experts;
    DownMemory memory;
    hc::Merge merge;
};

struct ChosenDown {
    const Planes& down;
    const std::int32_t* ids;
    __device__ WeightPlanes operator()(std::uint32_t slot) const {
        return down.of(static_cast<std::uint64_t>(ids[slot]));
    }
};
struct SharedDown {
    const Planes& down;
    __device__ const WeightPlanes& operator()(std::uint32_t) const { return down.first; }
};

/// All routed experts' products of the block's rows; the sum by slot of row `row` is returned to
/// the thread that asks for it afterwards.
template <class Format>
__device__ float routed_down(const Down& args, const RowRange& rows, const std::int32_t* ids) {
    const Experts& experts = args.experts;
    const std::uint32_t n_slots = experts.router.n_experts_used;
    const std::uint32_t warp = threadIdx.x / kWarp;
    unsigned char* shared = dynamic_shared();
    unsigned char* mid = shared + args.memory.tables_bytes;
    auto* partials = reinterpret_cast<float*>(shared + args.memory.partials_bytes);
    BandStream<Format, ChosenDown> stream(
        {rows.first, rows.last, experts.ff_dim / Format::kPiece, n_slots}, {experts.down, ids},
        args.memory.ring_bytes);
    stream.start();
    put_rows<Format>(mid, args.memory.row_bytes, {experts.mid, nullptr, 1.0f}, n_slots,
                     experts.ff_dim, warp, kStreamWarps);
    __syncthreads();
    stream.run(
        [&](std::uint32_t slot) {
            return shared_row<Format>(mid + slot * args.memory.row_bytes, experts.ff_dim);
        },
        partials);
    __syncthreads();
    float sum = 0.0f;
    const std::uint32_t row = rows.first + threadIdx.x;
    if (row < rows.last)
        for (std::uint32_t slot = 0; slot < n_slots; ++slot)
            sum += stream.row_sum(partials, slot, row);
    return sum;
}

/// The shared expert's products, from weights that are on their way since before the wait.
template <class Format>
__device__ float shared_down(const Down& args, const RowRange& rows) {
    const Experts& experts = args.experts;
    unsigned char* shared = dynamic_shared();
    auto* partials = reinterpret_cast<float*>(shared + args.memory.shared_partials_bytes);
    BandStream<Format, SharedDown> stream(
        {rows.first, rows.last, experts.ff_dim / Format::kPiece, 1}, {experts.shared_down},
        args.memory.ring_bytes);
    stream.start();
    const SharedRow x = shared_row<Format>(shared + args.memory.shared_row_bytes, experts.ff_dim);
    stream.run([&](std::uint32_t) { return x; }, partials);
    __syncthreads();
    const std::uint32_t row = rows.first + threadIdx.x;
    return row < rows.last ? stream.row_sum(partials, 0, row) : 0.0f;
}

__global__ void __launch_bounds__(kStreamThreads, 1)
    decode_experts_down_kernel(const __grid_constant__ Down args) {
    __shared__ std::int32_t ids[kExpertsUsedMax];
    allow_next_kernel();
    const Experts& experts = args.experts;
    const std::uint32_t n_slots = experts.router.n_experts_used;
    const RowRange rows = share_of_rows(experts.hidden, gridDim.x, blockIdx.x);
    unsigned char* shared = dynamic_shared();
    const hc::Tail tail(args.merge, rows, args.memory.size_bytes);
    const bool merges = args.merge.streams != nullptr;
    if (merges) tail.ask_for_fn();
    on_format(experts.shared_down_type, [&](auto format) {
        prefetch_rows<decltype(format)>(experts.shared_down.first, experts.ff_dim, rows.first,
                                        rows.last);
    });
    if (args.memory.tables_bytes != 0) fill_iq2_tables();
    wait_for_previous_kernel();
    if (merges) tail.ask_for_streams();
    if (threadIdx.x < n_slots) ids[threadIdx.x] = experts.expert_ids[threadIdx.x];
    __syncthreads();
    on_format(experts.down_type, [&](auto format) {
        for (std::uint32_t slot = 0; slot < n_slots; ++slot)
            prefetch_rows<decltype(format)>(experts.down.of(static_cast<std::uint64_t>(ids[slot])),
                                            experts.ff_dim, rows.first, rows.last);
    });
    on_format(experts.shared_down_type, [&](auto format) {
        put_row<decltype(format)>(
            shared + args.memory.shared_row_bytes,
            {experts.mid + std::uint64_t{n_slots} * experts.ff_dim, nullptr, 1.0f}, experts.ff_dim,
            threadIdx.x / kWarp, kStreamWarps);
    });
    float sum = 0.0f;
    on_format(experts.down_type,
              [&](auto format) { sum = routed_down<decltype(format)>(args, rows, ids); });
    on_format(experts.shared_down_type,
              [&](auto format) { sum += shared_down<decltype(format)>(args, rows); });
    const std::uint32_t row = rows.first + threadIdx.x;
    if (merges) {
        tail.await_copies();
        __syncthreads();
        if (row < rows.last) tail.merge(row, sum);
        tail.leave_sums();
    } else if (row < rows.last) {
        experts.output[row] = sum;
    }
}

}  // namespace

void decode_experts_down(const DecodeExpertsParams& params, const Launch& launch) {
    check_shapes(params);
    const std::uint32_t bands = (params.hidden + 3) / 4;
    const std::uint32_t n_blocks = hc::block_count(params.hidden, launch.n_multiprocessors);
    const std::uint32_t rows_max = (bands + n_blocks - 1) / n_blocks * 4;
    PLIMSOLL_KERNEL_CHECK(rows_max <= kStreamThreads, "a thread has at most one row");
    const Down args{experts_of(params, launch), down_memory(params, rows_max),
                    hc::merge_of(params.merge)};
    std::uint32_t shared_bytes = args.memory.size_bytes;
    if (args.merge.streams != nullptr) {
        PLIMSOLL_KERNEL_CHECK(args.merge.coefficients != nullptr, "there is what to merge with");
        PLIMSOLL_KERNEL_CHECK(args.merge.hidden == params.hidden, "the streams have another width");
        shared_bytes = hc::TailMemory(args.merge, rows_max, shared_bytes).size_bytes;
    }
    launch_kernel(
        decode_experts_down_kernel,
        {.grid = {n_blocks, 1, 1}, .block = {kStreamThreads, 1, 1}, .shared_bytes = shared_bytes},
        launch, args);
}

}  // namespace plimsoll::kernels::cuda
