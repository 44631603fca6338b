#include "runtime/arena.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "planner/check.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

/// Puts memory behind every page now, so that a step later cannot meet a machine that has run out.
/// 0, or an errno. Before Linux 5.14 pages come when they are written to.
int populate(void* base, std::uint64_t size_bytes) {
    if (madvise(base, size_bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL) return 0;
    return errno;
}

}  // namespace

Result<ArenaMemory> ArenaMemory::reserve(const Arena& arena) {
    if (arena.planned_bytes == 0) return ArenaMemory(arena, nullptr, true);
    void* base = mmap(nullptr, arena.planned_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return Error{
            ErrorKind::no_fit,
            fmt::format("{}: the system refuses {} in one piece ({}): lower --vram or "
                        "--host-mem, or free memory",
                        arena.name, format_bytes(arena.planned_bytes), std::strerror(errno))};
    }
    const auto unmap = [size_bytes = arena.planned_bytes](std::byte* at) {
        munmap(at, size_bytes);
    };
    ArenaMemory memory(arena, {static_cast<std::byte*>(base), unmap}, true);
    // Fewer, larger pages: only a wish, and of no consequence where it is not granted.
    madvise(base, arena.planned_bytes, MADV_HUGEPAGE);
    if (const int problem = populate(base, arena.planned_bytes); problem != 0)
        return Error{
            ErrorKind::no_fit,
            fmt::format("{}: {} are not to be had ({}): lower --vram or --host-mem, or free memory",
                        arena.name, format_bytes(arena.planned_bytes), std::strerror(problem))};
    return memory;
}

ArenaMemory ArenaMemory::over(const Arena& arena, std::shared_ptr<std::byte> memory) {
    PLIMSOLL_CHECK((memory != nullptr) == (arena.planned_bytes != 0),
                   fmt::format("{} is planned with {} bytes", arena.name, arena.planned_bytes));
    return ArenaMemory(arena, std::move(memory), false);
}

std::span<std::byte> ArenaMemory::take(RegionKind kind, std::int32_t layer,
                                       std::uint64_t size_bytes) {
    const Region* region = plan_->find(kind, layer);
    PLIMSOLL_CHECK(region != nullptr, fmt::format("{} has no region of kind {} for layer {}",
                                                  plan_->name, static_cast<int>(kind), layer));
    PLIMSOLL_CHECK(align_up(size_bytes, kTensorAlignmentBytes) == region->size_bytes,
                   fmt::format("{} of {} has {} bytes planned and {} are used", region->name,
                               plan_->name, region->size_bytes, size_bytes));
    return take(*region);
}

std::span<std::byte> ArenaMemory::take(const Region& region) {
    const auto index = static_cast<std::size_t>(&region - plan_->regions.data());
    PLIMSOLL_CHECK(index < plan_->regions.size(),
                   fmt::format("{} is no region of {}", region.name, plan_->name));
    PLIMSOLL_CHECK(!sealed_, fmt::format("{} is sealed and asked for {}, {} bytes", plan_->name,
                                         region.name, region.size_bytes));
    PLIMSOLL_CHECK(!taken_[index],
                   fmt::format("{} of {} is handed out already", region.name, plan_->name));
    PLIMSOLL_CHECK(region.offset_bytes + region.size_bytes <= plan_->planned_bytes,
                   fmt::format("{} ends past the {} bytes of {}", region.name, plan_->planned_bytes,
                               plan_->name));
    taken_[index] = true;
    return {base_.get() + region.offset_bytes, region.size_bytes};
}

std::uint64_t ArenaMemory::resident_bytes() const {
    if (!base_) return 0;
    if (!is_mapped_) return plan_->planned_bytes;
    const std::uint64_t page = page_bytes();
    const std::uint64_t n_pages = ceil_div(plan_->planned_bytes, page);
    // Asked a stretch at a time: a byte a page of 80 GiB would be 20 MiB.
    constexpr std::uint64_t kPagesAtOnce = 4096;
    unsigned char is_resident[kPagesAtOnce];
    std::uint64_t resident_pages = 0;
    for (std::uint64_t first = 0; first < n_pages; first += kPagesAtOnce) {
        const std::uint64_t count = std::min(kPagesAtOnce, n_pages - first);
        if (mincore(base_.get() + first * page, count * page, is_resident) != 0) continue;
        for (std::uint64_t index = 0; index < count; ++index)
            resident_pages += is_resident[index] & 1u;
    }
    return std::min(resident_pages * page, plan_->planned_bytes);
}

}  // namespace plimsoll
