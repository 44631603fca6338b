#include "tests/planner/allocation_meter.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace plimsoll::test {
namespace {

// Tests allocate from one thread while they watch.
bool watching = false;
Allocations seen;

void* allocate(std::size_t size_bytes) {
    if (watching) {
        ++seen.count;
        seen.total_bytes += size_bytes;
        seen.largest_bytes = std::max<std::uint64_t>(seen.largest_bytes, size_bytes);
    }
    if (void* memory = std::malloc(size_bytes)) return memory;
    throw std::bad_alloc();
}

}  // namespace

void watch_allocations() {
    seen = {};
    watching = true;
}

Allocations stop_watching_allocations() {
    watching = false;
    return seen;
}

}  // namespace plimsoll::test

void* operator new(std::size_t size_bytes) { return plimsoll::test::allocate(size_bytes); }
void* operator new[](std::size_t size_bytes) { return plimsoll::test::allocate(size_bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
