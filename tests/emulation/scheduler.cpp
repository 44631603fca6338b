#include "tests/emulation/scheduler.hpp"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

// Saves what a function must preserve on the stack, changes stacks and goes on there. The library's
// swapcontext does the same with a system call for the signal mask, a hundred times slower.
asm(R"(
    .text
    .globl plimsoll_switch_stack
    .type plimsoll_switch_stack, @function
plimsoll_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size plimsoll_switch_stack, .-plimsoll_switch_stack
)");
extern "C" void plimsoll_switch_stack(void** saved, void* next);

namespace plimsoll::emulation {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSharedGuardBytes = 256;
constexpr unsigned char kGuardValue = 0xCD;
constexpr int kPoisonValue = 0xFF;
constexpr std::uint32_t kNamedBarriers = 16;  // 0 is the block's own
constexpr std::uint32_t kIdleRoundsMax = 100'000;
/// Static shared memory of all kernels of a program; beyond this it is poisoned once a launch.
constexpr std::size_t kPoisonedEachBlockBytesMax = std::size_t{1} << 20;

enum class State : std::uint8_t { ready, yielding, at_warp, at_barrier, ended };

struct Copy {
    void* to;
    const void* from;
    std::uint32_t size_bytes;
    std::uint32_t group;
    bool valid;
};

struct Block;

struct Thread {
    void* stack_pointer = nullptr;
    Block* block = nullptr;
    uint3 index{};
    std::uint32_t warp = 0;
    std::uint32_t lane = 0;
    State state = State::ready;
    WarpOperation operation = nullptr;
    std::uint32_t mask = 0;
    void* lane_data = nullptr;
    std::uint32_t barrier = 0;
    std::uint32_t group = 0;  // of copies not yet committed
    std::vector<Copy> copies;
};

struct Warp {
    std::uint32_t live = 0;  // lanes that have not ended
    std::uint32_t waiting = 0;
};

struct Barrier {
    std::uint32_t arrived = 0;
    Votes votes;
};

struct Block {
    uint3 index{};
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::uint32_t n_live = 0;
    Barrier barriers[kNamedBarriers];
    Votes result;
    std::vector<unsigned char> shared_storage;
    unsigned char* shared = nullptr;
    std::vector<unsigned char> static_shared;  // while another block runs
};

/// The launch in progress. One at a time: the emulator serves tests, which launch from one thread.
struct Machine {
    Grid grid;
    void (*body)(const void*) = nullptr;
    const void* arguments = nullptr;
    void* scheduler_stack = nullptr;
    Thread* running = nullptr;
    Block* active = nullptr;  // whose static shared memory is in place
    std::vector<unsigned char*> stacks;
};
Machine machine;

[[noreturn]] void fail(const char* why, const Block* block = nullptr) {
    std::fprintf(stderr, "emulation: %s, in a kernel launched by %s (%s:%u)\n", why,
                 machine.grid.launcher.function_name(), machine.grid.launcher.file_name(),
                 machine.grid.launcher.line());
    if (machine.running != nullptr) {
        const Thread& thread = *machine.running;
        const uint3& at = thread.block->index;
        std::fprintf(stderr, "  by thread (%u, %u, %u) of block (%u, %u, %u)\n", thread.index.x,
                     thread.index.y, thread.index.z, at.x, at.y, at.z);
    }
    if (block != nullptr) {
        static const char* const kNames[] = {"ready", "yielding", "at a warp operation",
                                             "at a barrier", "ended"};
        std::fprintf(stderr, "  block (%u, %u, %u):\n", block->index.x, block->index.y,
                     block->index.z);
        for (const Thread& thread : block->threads)
            if (thread.state != State::ended && (thread.lane == 0 || block->n_live < 64))
                std::fprintf(stderr, "  thread (%u, %u, %u) %s, mask %x, barrier %u\n",
                             thread.index.x, thread.index.y, thread.index.z,
                             kNames[static_cast<int>(thread.state)], thread.mask, thread.barrier);
    }
    std::abort();
}

/// Variables declared __shared__ are thread_local (cuda_runtime.h): the program's own TLS segment.
struct Segment {
    unsigned char* data = nullptr;
    std::size_t size_bytes = 0;
};
const Segment& static_shared_segment() {
    static const Segment segment = [] {
        Segment found;
        dl_iterate_phdr(
            [](dl_phdr_info* info, std::size_t, void* out) {
                for (int i = 0; i < info->dlpi_phnum; ++i)
                    if (info->dlpi_phdr[i].p_type == PT_TLS)
                        *static_cast<Segment*>(out) = {
                            static_cast<unsigned char*>(info->dlpi_tls_data),
                            info->dlpi_phdr[i].p_memsz};
                return 1;  // the first is the program itself
            },
            &found);
        return found;
    }();
    return segment;
}

unsigned char* stack(std::size_t index) {
    while (machine.stacks.size() <= index) {
        void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, kPageBytes, PROT_NONE) != 0)
            fail("no memory for stacks");
        machine.stacks.push_back(static_cast<unsigned char*>(memory));
    }
    return machine.stacks[index];
}

void leave(State state) {
    Thread& thread = *machine.running;
    thread.state = state;
    plimsoll_switch_stack(&thread.stack_pointer, machine.scheduler_stack);
}

/// Runs the operation that `thread` waits at, if its lanes are all there.
bool complete_warp(Thread& thread) {
    Block& block = *thread.block;
    Warp& warp = block.warps[thread.warp];
    const std::uint32_t members = thread.mask & warp.live;
    if ((warp.waiting & members) != members) return false;
    void* lanes[kWarp] = {};
    Thread* first = &block.threads[std::size_t{thread.warp} * kWarp];
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        if ((members >> lane & 1) == 0) continue;
        if (first[lane].operation != thread.operation || first[lane].mask != thread.mask)
            fail("lanes of a warp meet at different operations or with different masks", &block);
        lanes[lane] = first[lane].lane_data;
    }
    thread.operation(lanes);
    warp.waiting &= ~members;
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
        if ((members >> lane & 1) != 0) first[lane].state = State::ready;
    return true;
}

void complete_barrier(Block& block, std::uint32_t barrier) {
    block.result = block.barriers[barrier].votes;
    block.barriers[barrier] = {};
    for (Thread& thread : block.threads)
        if (thread.state == State::at_barrier && thread.barrier == barrier)
            thread.state = State::ready;
}

/// What others wait for may be there now that `thread` has ended.
void end_thread(Thread& thread) {
    Block& block = *thread.block;
    Warp& warp = block.warps[thread.warp];
    warp.live &= ~(1u << thread.lane);
    --block.n_live;
    Thread* first = &block.threads[std::size_t{thread.warp} * kWarp];
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
        if ((warp.waiting >> lane & 1) != 0) complete_warp(first[lane]);
    if (block.barriers[0].arrived != 0 && block.barriers[0].arrived == block.n_live)
        complete_barrier(block, 0);
}

[[noreturn]] void thread_main() {
    machine.body(machine.arguments);
    Thread& thread = *machine.running;
    end_thread(thread);
    leave(State::ended);
    std::abort();
}

void prepare(Thread& thread, std::size_t stack_index) {
    // Tops of stacks at different places of a page, so that they do not share a set of the cache.
    const std::size_t shift = stack_index % 31 * 128;
    auto* top = reinterpret_cast<void**>(stack(stack_index) + kStackBytes - 64 - shift);
    *--top = nullptr;  // keeps the alignment that a call would leave
    *--top = reinterpret_cast<void*>(thread_main);
    top -= 6;
    std::fill_n(top, 6, nullptr);
    thread.stack_pointer = top;
}

void start_block(Block& block, std::uint64_t number, std::size_t first_stack) {
    const dim3& grid = machine.grid.grid;
    const dim3& size = machine.grid.block;
    block.index = {static_cast<unsigned>(number % grid.x),
                   static_cast<unsigned>(number / grid.x % grid.y),
                   static_cast<unsigned>(number / grid.x / grid.y)};
    block.n_live = size.x * size.y * size.z;
    block.threads.resize(block.n_live);
    block.warps.assign((block.n_live + kWarp - 1) / kWarp, {});
    std::fill_n(block.barriers, kNamedBarriers, Barrier{});
    for (std::uint32_t at = 0; at < block.n_live; ++at) {
        Thread& thread = block.threads[at];
        thread.block = &block;
        thread.index = {at % size.x, at / size.x % size.y, at / size.x / size.y};
        thread.warp = at / kWarp;
        thread.lane = at % kWarp;
        thread.state = State::ready;
        thread.group = 0;
        thread.copies.clear();
        block.warps[thread.warp].live |= 1u << thread.lane;
        prepare(thread, first_stack + at);
    }
    const std::size_t shared_bytes = machine.grid.shared_bytes;
    block.shared_storage.assign(shared_bytes + kSharedGuardBytes + 128, kGuardValue);
    const auto address = reinterpret_cast<std::uintptr_t>(block.shared_storage.data());
    block.shared = block.shared_storage.data() + (128 - address % 128) % 128;
    std::memset(block.shared, kPoisonValue, shared_bytes);
}

void end_block(const Block& block) {
    const unsigned char* guard = block.shared + machine.grid.shared_bytes;
    if (!std::all_of(guard, guard + kSharedGuardBytes,
                     [](unsigned char byte) { return byte == kGuardValue; }))
        fail("a write behind dynamic shared memory", &block);
}

void run_thread(Thread& thread) {
    machine.running = &thread;
    threadIdx = thread.index;
    plimsoll_switch_stack(&machine.scheduler_stack, thread.stack_pointer);
    machine.running = nullptr;
}

enum class Progress : std::uint8_t { none, only_yields, some };

/// Runs every thread of the block until it waits, ends or yields. Odd blocks run backwards, so that
/// a result that needs a barrier which is not there comes out wrong in one of two blocks.
Progress run_block(Block& block) {
    Progress progress = Progress::none;
    blockIdx = block.index;
    for (Thread& thread : block.threads)
        if (thread.state == State::yielding) thread.state = State::ready;
    const bool backwards = (block.index.x + block.index.y + block.index.z) % 2 == 1;
    const std::size_t n_threads = block.threads.size();
    const std::size_t n_warps = block.warps.size();
    for (std::size_t i = 0; i < n_warps; ++i) {
        const std::size_t warp = backwards ? n_warps - 1 - i : i;
        const std::size_t first = warp * kWarp;
        const std::size_t n_lanes = std::min<std::size_t>(kWarp, n_threads - first);
        for (bool ran = true; ran;) {
            ran = false;
            for (std::size_t j = 0; j < n_lanes; ++j) {
                Thread& thread = block.threads[first + (backwards ? n_lanes - 1 - j : j)];
                if (thread.state != State::ready) continue;
                run_thread(thread);
                ran = true;
                if (thread.state != State::yielding) progress = Progress::some;
                if (progress == Progress::none) progress = Progress::only_yields;
            }
        }
    }
    return progress;
}

void activate(Block& block) {
    const Segment& segment = static_shared_segment();
    if (machine.active == &block || segment.size_bytes == 0) return;
    if (machine.active != nullptr)
        std::memcpy(machine.active->static_shared.data(), segment.data, segment.size_bytes);
    std::memcpy(segment.data, block.static_shared.data(), segment.size_bytes);
    machine.active = &block;
}

void run_resident(std::uint64_t n_blocks) {
    const std::size_t n_threads =
        machine.grid.block.x * machine.grid.block.y * machine.grid.block.z;
    if (n_blocks > std::uint64_t{kMultiprocessors} * (kThreadsResidentMax / n_threads))
        fail("more blocks than fit on the device, and they wait for one another");
    std::vector<Block> blocks(n_blocks);
    for (std::size_t at = 0; at < n_blocks; ++at) {
        blocks[at].static_shared.assign(static_shared_segment().size_bytes, kPoisonValue);
        start_block(blocks[at], at, at * n_threads);
    }
    machine.active = nullptr;
    std::uint32_t idle_rounds = 0;
    while (
        std::any_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.n_live != 0; })) {
        Progress progress = Progress::none;
        for (Block& block : blocks) {
            if (block.n_live == 0) continue;
            activate(block);
            progress = std::max(progress, run_block(block));
        }
        if (progress == Progress::none) fail("threads wait for each other for ever", blocks.data());
        idle_rounds = progress == Progress::some ? 0 : idle_rounds + 1;
        if (idle_rounds > kIdleRoundsMax) fail("blocks spin for ever", blocks.data());
    }
    for (const Block& block : blocks) end_block(block);
}

void run_in_turn(std::uint64_t n_blocks) {
    static Block block;
    const Segment& segment = static_shared_segment();
    for (std::uint64_t number = 0; number < n_blocks; ++number) {
        if (number == 0 || segment.size_bytes <= kPoisonedEachBlockBytesMax)
            std::memset(segment.data, kPoisonValue, segment.size_bytes);
        start_block(block, number, 0);
        std::uint32_t idle_rounds = 0;
        while (block.n_live != 0) {
            const Progress progress = run_block(block);
            if (progress == Progress::none) fail("threads wait for each other for ever", &block);
            idle_rounds = progress == Progress::some ? 0 : idle_rounds + 1;
            if (idle_rounds > kIdleRoundsMax)
                fail("a block spins for ever: is it to be all_blocks_resident?", &block);
        }
        end_block(block);
    }
}

}  // namespace

void run_grid(const Grid& grid, void (*body)(const void*), const void* arguments) {
    if (machine.running != nullptr) fail("a launch from within a kernel");
    machine.grid = grid;
    machine.body = body;
    machine.arguments = arguments;
    blockDim = grid.block;
    gridDim = grid.grid;
    const std::uint64_t n_threads = std::uint64_t{grid.block.x} * grid.block.y * grid.block.z;
    if (n_threads == 0 || n_threads > 1024) fail("a block has 1 to 1024 threads");
    if (grid.grid.y > 65535 || grid.grid.z > 65535) fail("a grid's y and z are at most 65535");
    if (grid.shared_bytes > kSharedBytesMax) fail("too much dynamic shared memory");
    const std::uint64_t n_blocks = std::uint64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
    if (grid.all_blocks_resident)
        run_resident(n_blocks);
    else
        run_in_turn(n_blocks);
}

void meet_warp(std::uint32_t mask, WarpOperation operation, void* lane_data) {
    Thread& thread = *machine.running;
    if ((mask >> thread.lane & 1) == 0)
        fail("a lane calls a warp operation without being in its mask");
    thread.operation = operation;
    thread.mask = mask;
    thread.lane_data = lane_data;
    thread.block->warps[thread.warp].waiting |= 1u << thread.lane;
    if (!complete_warp(thread)) leave(State::at_warp);
}

Votes meet_block(int predicate) {
    Thread& thread = *machine.running;
    Block& block = *thread.block;
    Barrier& barrier = block.barriers[0];
    ++barrier.arrived;
    barrier.votes.any |= predicate != 0 ? 1 : 0;
    barrier.votes.all &= predicate != 0 ? 1 : 0;
    barrier.votes.count += predicate != 0 ? 1 : 0;
    thread.barrier = 0;
    if (barrier.arrived == block.n_live)
        complete_barrier(block, 0);
    else
        leave(State::at_barrier);
    return block.result;
}

void meet_some(std::uint32_t barrier, std::uint32_t n_threads) {
    Thread& thread = *machine.running;
    Block& block = *thread.block;
    if (barrier == 0 || barrier >= kNamedBarriers || n_threads % kWarp != 0)
        fail("barriers are 1 to 15, for whole warps");
    thread.barrier = barrier;
    if (++block.barriers[barrier].arrived == n_threads)
        complete_barrier(block, barrier);
    else
        leave(State::at_barrier);
}

void yield_thread() { leave(State::yielding); }

std::uint32_t lane_index() { return machine.running->lane; }

unsigned char* dynamic_shared() { return machine.running->block->shared; }

void copy_async(void* to_shared, const void* from, std::uint32_t size_bytes, bool valid) {
    const auto to = reinterpret_cast<std::uintptr_t>(to_shared);
    const auto source = reinterpret_cast<std::uintptr_t>(from);
    if (to % size_bytes != 0 || (valid && source % size_bytes != 0))
        fail("a misaligned asynchronous copy");
    Thread& thread = *machine.running;
    const Segment& segment = static_shared_segment();
    const auto* at = static_cast<unsigned char*>(to_shared);
    const unsigned char* shared = thread.block->shared;
    const bool in_dynamic = at >= shared && at + size_bytes <= shared + machine.grid.shared_bytes;
    const bool in_static =
        at >= segment.data && at + size_bytes <= segment.data + segment.size_bytes;
    if (!in_dynamic && !in_static) fail("an asynchronous copy to outside of shared memory");
    std::memset(to_shared, kPoisonValue, size_bytes);
    thread.copies.push_back({to_shared, from, size_bytes, thread.group, valid});
}

void commit_copies() { ++machine.running->group; }

void wait_for_copies(std::uint32_t n_pending) {
    Thread& thread = *machine.running;
    std::size_t n_done = 0;
    for (const Copy& copy : thread.copies) {
        if (copy.group + n_pending >= thread.group) break;
        if (copy.valid)
            std::memcpy(copy.to, copy.from, copy.size_bytes);
        else
            std::memset(copy.to, 0, copy.size_bytes);
        ++n_done;
    }
    thread.copies.erase(thread.copies.begin(),
                        thread.copies.begin() + static_cast<std::ptrdiff_t>(n_done));
}

}  // namespace plimsoll::emulation
