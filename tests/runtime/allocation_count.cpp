#include "tests/runtime/allocation_count.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> count{0};

}  // namespace

namespace plimsoll::test {

std::uint64_t allocation_count() { return count.load(); }

}  // namespace plimsoll::test

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// A sanitizer has its own malloc, which must stay in charge; operator new is enough of a count
// then.
void* operator new(std::size_t size) {
    ++count;
    void* memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#else

// The C library's own, behind the names that this file takes over. operator new calls malloc.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t n, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);

void* malloc(std::size_t size) {
    ++count;
    return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
    ++count;
    return __libc_calloc(n, size);
}
void* realloc(void* memory, std::size_t size) {
    ++count;
    return __libc_realloc(memory, size);
}
}

#endif
