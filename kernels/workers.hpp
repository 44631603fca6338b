#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace plimsoll::kernels {

/// The threads that ops share. The runtime makes one at start; ops take it by reference and never
/// create threads or allocate. One caller at a time: calls do not nest.
class Workers {
public:
    /// `n_threads` counts the calling thread; 1 runs everything inline and starts none. 0 counts
    /// as 1.
    explicit Workers(std::uint32_t n_threads);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    [[nodiscard]] std::uint32_t n_threads() const { return n_threads_; }

    /// Calls `body(first, last)` on disjoint ranges that cover [0, count), each at most `grain`
    /// long and starting at a multiple of it, and returns when all are done. Which thread takes
    /// which range is open, so a body must not let its results depend on it. `body` is used in
    /// place, not copied.
    template <class Body>
    void parallel_for(std::uint64_t count, std::uint64_t grain, const Body& body) const {
        static_assert(std::is_invocable_v<const Body&, std::uint64_t, std::uint64_t>);
        run(
            count, grain,
            [](const void* context, std::uint64_t first, std::uint64_t last) {
                (*static_cast<const Body*>(context))(first, last);
            },
            &body);
    }

private:
    using Call = void (*)(const void* context, std::uint64_t first, std::uint64_t last);
    void run(std::uint64_t count, std::uint64_t grain, Call call, const void* context) const;

    struct Pool;
    std::uint32_t n_threads_;
    std::unique_ptr<Pool> pool_;
};

}  // namespace plimsoll::kernels
