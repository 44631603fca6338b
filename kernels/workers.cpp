#include "kernels/workers.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "kernels/check.hpp"

namespace plimsoll::kernels {
namespace {

/// Iterations a thread looks for work before it sleeps: about 20 us, longer than the gap between
/// two ops of a step and short enough not to hold a core between requests.
constexpr int kSpinIterations = 1000;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

/// One job at a time. `gate` is kOpen plus the number of helpers inside the job: a helper may enter
/// only while it is open, and the caller leaves only when it is closed and empty. So a helper that
/// wakes late finds a closed gate and costs the caller nothing.
struct Workers::Pool {
    static constexpr std::uint32_t kOpen = 1u << 31;

    std::vector<std::thread> threads;
    std::atomic<std::uint32_t> job_number{
        0};  // changes with each job and on stop; helpers sleep on it
    std::atomic<std::uint32_t> gate{0};
    std::atomic<std::uint64_t> next{0};  // first item nobody has taken
    std::atomic<bool> stop{false};
    Call call = nullptr;
    const void* context = nullptr;
    std::uint64_t count = 0;
    std::uint64_t grain = 1;

    void take_ranges() {
        for (;;) {
            const std::uint64_t first = next.fetch_add(grain, std::memory_order_relaxed);
            if (first >= count) return;
            call(context, first, std::min(first + grain, count));
        }
    }

    bool enter() {
        std::uint32_t seen = gate.load(std::memory_order_relaxed);
        while ((seen & kOpen) != 0)
            if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
        return false;
    }

    void help() {
        std::uint32_t seen = 0;
        while (!stop.load(std::memory_order_relaxed)) {
            std::uint32_t current = job_number.load(std::memory_order_acquire);
            for (int i = 0; current == seen && i < kSpinIterations; ++i) {
                pause();
                current = job_number.load(std::memory_order_acquire);
            }
            if (current == seen) {
                job_number.wait(seen, std::memory_order_acquire);
                continue;
            }
            seen = current;
            if (!enter()) continue;
            take_ranges();
            gate.fetch_sub(1, std::memory_order_release);
        }
    }
};

Workers::Workers(std::uint32_t n_threads)
    : n_threads_(std::max(n_threads, 1u)), pool_(std::make_unique<Pool>()) {
    for (std::uint32_t i = 1; i < n_threads_; ++i)
        pool_->threads.emplace_back([pool = pool_.get()] { pool->help(); });
}

Workers::~Workers() {
    pool_->stop.store(true, std::memory_order_relaxed);
    pool_->job_number.fetch_add(1, std::memory_order_release);
    pool_->job_number.notify_all();
    for (std::thread& thread : pool_->threads) thread.join();
}

void Workers::run(std::uint64_t count, std::uint64_t grain, Call call, const void* context) const {
    PLIMSOLL_KERNEL_CHECK(grain > 0, "a range needs items");
    if (n_threads_ == 1 || count <= grain) {
        for (std::uint64_t first = 0; first < count; first += grain)
            call(context, first, std::min(first + grain, count));
        return;
    }
    Pool& pool = *pool_;
    PLIMSOLL_KERNEL_CHECK(pool.gate.load(std::memory_order_relaxed) == 0, "calls do not nest");
    pool.call = call;
    pool.context = context;
    pool.count = count;
    pool.grain = grain;
    pool.next.store(0, std::memory_order_relaxed);
    pool.gate.store(Pool::kOpen, std::memory_order_release);
    pool.job_number.fetch_add(1, std::memory_order_release);
    pool.job_number.notify_all();
    pool.take_ranges();
    pool.gate.fetch_and(~Pool::kOpen, std::memory_order_acq_rel);
    // Helpers inside hold at most one range each, so this wait is short and never sleeps.
    for (int i = 0; pool.gate.load(std::memory_order_acquire) != 0; ++i) {
        if (i < kSpinIterations)
            pause();
        else
            std::this_thread::yield();
    }
}

}  // namespace plimsoll::kernels
