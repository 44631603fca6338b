#include "kernels/cuda/intrinsics.cuh"
#include "kernels/cuda/ops.hpp"

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 1024;
constexpr std::uint32_t kWarps = kThreads / kWarp;
constexpr std::uint32_t kExpertsMax = 1024;  // 128 KiB of counts at most

/// An expert's first place in the list of assignments and in the list of tiles.
struct ExpertStart {
    std::uint32_t assignment;
    std::uint32_t tile;
};

__device__ std::uint32_t tiles_of(std::uint32_t n_assignments) {
    return (n_assignments + kExpertTileRows - 1) / kExpertTileRows;
}

/// Exclusive sums over experts by one warp, each lane a run of them; starts[n_experts] is the
/// whole.
__device__ void sum_starts(const std::uint32_t* totals, std::uint32_t n_experts,
                           ExpertStart* starts) {
    const std::uint32_t lane = threadIdx.x;
    const std::uint32_t run = (n_experts + kWarp - 1) / kWarp;
    const std::uint32_t first = min(lane * run, n_experts);
    const std::uint32_t last = min(first + run, n_experts);
    ExpertStart own{0, 0};
    for (std::uint32_t expert = first; expert < last; ++expert) {
        own.assignment += totals[expert];
        own.tile += tiles_of(totals[expert]);
    }
    ExpertStart before = own;
    for (std::uint32_t offset = 1; offset < kWarp; offset *= 2) {
        const std::uint32_t assignment = __shfl_up_sync(kAllLanes, before.assignment, offset);
        const std::uint32_t tile = __shfl_up_sync(kAllLanes, before.tile, offset);
        if (lane < offset) continue;
        before.assignment += assignment;
        before.tile += tile;
    }
    if (lane == kWarp - 1) starts[n_experts] = before;
    before.assignment -= own.assignment;
    before.tile -= own.tile;
    for (std::uint32_t expert = first; expert < last; ++expert) {
        starts[expert] = before;
        before.assignment += totals[expert];
        before.tile += tiles_of(totals[expert]);
    }
}

/// Lanes of the warp, those in `valid` only, that have the same id.
__device__ std::uint32_t lanes_with(std::uint32_t id, std::uint32_t valid,
                                    std::uint32_t n_experts) {
    std::uint32_t lanes = valid;
    for (std::uint32_t bit = 1; bit < n_experts; bit *= 2) {
        const std::uint32_t set = __ballot_sync(kAllLanes, (id & bit) != 0);
        lanes &= (id & bit) != 0 ? set : ~set;
    }
    return lanes;
}

/// One block: 24,576 assignments are 24 a thread. Each warp has a run of them and counts of its
/// own, so that places follow from sums over warps, in the order of tokens.
__global__ void __launch_bounds__(kThreads) group_kernel(const GroupParams params) {
    wait_for_previous_kernel();
    __shared__ std::uint32_t totals[kExpertsMax];
    __shared__ ExpertStart starts[kExpertsMax + 1];
    auto* counts = reinterpret_cast<std::uint32_t*>(dynamic_shared());  // [kWarps, n_experts]
    const GroupByExpertParams& groups = params.groups;
    const std::uint32_t n_experts = groups.n_experts;
    const std::uint32_t n_assignments = groups.n_tokens * groups.n_experts_used;
    const std::uint32_t lane = threadIdx.x % kWarp;
    const std::uint32_t warp = threadIdx.x / kWarp;
    std::uint32_t* own_counts = counts + warp * n_experts;
    const std::uint32_t run = (n_assignments + kThreads - 1) / kThreads * kWarp;
    const std::uint32_t first = min(warp * run, n_assignments);
    const std::uint32_t last = min(first + run, n_assignments);

    for (std::uint32_t i = threadIdx.x; i < kWarps * n_experts; i += kThreads) counts[i] = 0;
    __syncthreads();
    for (std::uint32_t a = first + lane; a < last; a += kWarp)
        atomicAdd(own_counts + groups.expert_ids[a], 1u);
    __syncthreads();
    for (std::uint32_t expert = threadIdx.x; expert < n_experts; expert += kThreads) {
        std::uint32_t before = 0;
        for (std::uint32_t w = 0; w < kWarps; ++w) {
            const std::uint32_t count = counts[w * n_experts + expert];
            counts[w * n_experts + expert] = before;
            before += count;
        }
        totals[expert] = before;
    }
    __syncthreads();
    if (warp == 0) sum_starts(totals, n_experts, starts);
    __syncthreads();

    for (std::uint32_t expert = threadIdx.x; expert <= n_experts; expert += kThreads) {
        const ExpertStart start = starts[expert];
        groups.expert_offsets[expert] = static_cast<std::int32_t>(start.assignment);
        if (expert == n_experts) {
            params.tiles[0] = static_cast<std::int32_t>(start.tile);
            continue;
        }
        for (std::uint32_t i = 0; i < tiles_of(totals[expert]); ++i) {
            std::int32_t* tile = params.tiles + 1 + 2 * (start.tile + i);
            tile[0] = static_cast<std::int32_t>(expert);
            tile[1] = static_cast<std::int32_t>(start.assignment + i * kExpertTileRows);
        }
    }
    for (std::uint32_t a_first = first; a_first < last; a_first += kWarp) {
        const std::uint32_t a = a_first + lane;
        const std::uint32_t valid = __ballot_sync(kAllLanes, a < last);
        const auto id = a < last ? static_cast<std::uint32_t>(groups.expert_ids[a]) : 0u;
        const std::uint32_t lanes = lanes_with(id, valid, n_experts);
        const std::uint32_t rank = __popc(lanes & ((1u << lane) - 1));
        if (a < last)
            groups.assignments[starts[id].assignment + own_counts[id] + rank] =
                static_cast<std::int32_t>(a);
        __syncwarp();
        if (a < last && rank == 0) own_counts[id] += __popc(lanes);
        __syncwarp();
    }
    allow_next_kernel();
}

}  // namespace

void group_by_expert(const GroupParams& params, const Launch& launch) {
    const std::uint32_t n_experts = params.groups.n_experts;
    PLIMSOLL_KERNEL_CHECK(n_experts > 0 && n_experts <= kExpertsMax,
                          "more experts than the counts have room for");
    const auto shared_bytes =
        static_cast<std::uint32_t>(kWarps * n_experts * sizeof(std::uint32_t));
    launch_kernel(group_kernel, {dim3(1), dim3(kThreads), shared_bytes}, launch, params);
}

}  // namespace plimsoll::kernels::cuda
