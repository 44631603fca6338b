#include "offload/disk_probe.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "offload/open_file.hpp"

namespace plimsoll::offload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWriteBytes = 4 << 20;
constexpr std::uint64_t kBuffersBytesMax = 1 << 30;
/// Past this many, threads wait for the processor rather than for the drive.
constexpr std::uint32_t kThreadsMax = 64;

struct FreeBytes {
    void operator()(void* bytes) const { std::free(bytes); }
};
using AlignedBytes = std::unique_ptr<char, FreeBytes>;

AlignedBytes aligned_bytes(std::uint64_t size_bytes) {
    return AlignedBytes(static_cast<char*>(std::aligned_alloc(kSectorBytes, size_bytes)));
}

/// The reads of one run: which blocks, in which order, and until when.
struct Reads {
    int fd = -1;
    std::string path;
    std::uint64_t size_bytes = 0;  // of the part that is read
    std::uint64_t block_bytes = 0;
    std::uint32_t depth = 0;
    std::vector<std::uint64_t> order;  // of blocks; each once
    Clock::time_point deadline;

    [[nodiscard]] std::uint64_t offset_bytes(std::size_t at) const {
        return order[at] * block_bytes;
    }
    /// Bytes of the block, fewer for the last of the file.
    [[nodiscard]] std::uint64_t expected_bytes(std::size_t at) const {
        return std::min(block_bytes, size_bytes - offset_bytes(at));
    }
    [[nodiscard]] IoError error(std::size_t at, int error_number) const {
        return {.action = "read",
                .path = path,
                .error_number = error_number,
                .offset_bytes = offset_bytes(at),
                .size_bytes = expected_bytes(at)};
    }
};

IoError call_error(const char* action, const std::string& path, int error_number = errno) {
    return {.action = action, .path = path, .error_number = error_number};
}

/// A ring of the kernel's, given back however its user ends.
class Ring {
public:
    /// 0, or why the kernel gives none.
    int make(std::uint32_t depth) {
        const int status = io_uring_queue_init(depth, &ring_, 0);
        made_ = status == 0;
        return -status;
    }
    Ring() = default;
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() {
        if (made_) io_uring_queue_exit(&ring_);
    }
    [[nodiscard]] io_uring* get() { return &ring_; }

private:
    io_uring ring_{};
    bool made_ = false;
};

/// Reads by ring: `depth` slots, each with a buffer and the block it is busy with.
class RingReader {
public:
    explicit RingReader(const Reads& reads)
        : reads_(reads),
          buffers_(aligned_bytes(reads.depth * reads.block_bytes)),
          block_of_slot_(reads.depth) {
        for (std::uint32_t slot = 0; slot < reads.depth; ++slot) idle_slots_.push_back(slot);
    }

    /// 0, or why the kernel gives no ring.
    int make() { return ring_.make(reads_.depth); }

    /// Bytes read by the deadline, or the first error.
    IoResult<std::uint64_t> run() {
        for (;;) {
            while (!idle_slots_.empty() && next_ < reads_.order.size() && !error_ &&
                   Clock::now() < reads_.deadline)
                begin(next_++);
            if (idle_slots_.size() == reads_.depth) break;
            const int submitted = io_uring_submit_and_wait(ring_.get(), 1);
            if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN)
                return call_error("io_uring_enter", reads_.path, -submitted);
            reap();
        }
        if (error_) return *error_;
        return read_bytes_;
    }

private:
    void begin(std::size_t at) {
        const std::uint32_t slot = idle_slots_.back();
        idle_slots_.pop_back();
        block_of_slot_[slot] = at;
        submit(slot);
    }

    void submit(std::uint32_t slot) {
        io_uring_sqe* entry = io_uring_get_sqe(ring_.get());
        io_uring_prep_read(entry, reads_.fd, buffers_.get() + slot * reads_.block_bytes,
                           static_cast<unsigned>(reads_.block_bytes),
                           reads_.offset_bytes(block_of_slot_[slot]));
        io_uring_sqe_set_data64(entry, slot);
    }

    void reap() {
        io_uring_cqe* done = nullptr;
        while (io_uring_peek_cqe(ring_.get(), &done) == 0) {
            const auto slot = static_cast<std::uint32_t>(io_uring_cqe_get_data64(done));
            const int status = done->res;
            io_uring_cqe_seen(ring_.get(), done);
            finish(slot, status);
        }
    }

    void finish(std::uint32_t slot, int status) {
        if ((status == -EINTR || status == -EAGAIN) && !error_) return submit(slot);
        const std::size_t at = block_of_slot_[slot];
        idle_slots_.push_back(slot);
        if (status > 0)
            read_bytes_ += std::min(reads_.expected_bytes(at), static_cast<std::uint64_t>(status));
        else if (!error_)
            error_ = reads_.error(at, -status);
    }

    const Reads& reads_;
    AlignedBytes buffers_;  // [depth, block_bytes]
    Ring ring_;             // after the buffers, so that it goes before what it may still write to
    std::vector<std::size_t> block_of_slot_;
    std::vector<std::uint32_t> idle_slots_;
    std::size_t next_ = 0;
    std::uint64_t read_bytes_ = 0;
    std::optional<IoError> error_;
};

/// Reads by threads, one block each at a time. What is left where the kernel gives no ring.
class ThreadReader {
public:
    explicit ThreadReader(const Reads& reads) : reads_(reads) {}

    IoResult<std::uint64_t> run() {
        std::vector<std::thread> threads;
        const std::uint32_t count = std::min(reads_.depth, kThreadsMax);
        for (std::uint32_t thread = 0; thread < count; ++thread)
            threads.emplace_back([this] { read_blocks(); });
        for (std::thread& thread : threads) thread.join();
        const std::uint64_t failed = failed_.load();
        if (failed != kNone)
            return reads_.error(failed >> kErrnoBits, static_cast<int>(failed & kErrnoMask));
        return read_bytes_.load();
    }

private:
    // The first failure as one word: a block and its errno.
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    static constexpr int kErrnoBits = 16;
    static constexpr std::uint64_t kErrnoMask = (1 << kErrnoBits) - 1;

    void read_blocks() {
        const AlignedBytes buffer = aligned_bytes(reads_.block_bytes);
        while (Clock::now() < reads_.deadline && failed_.load() == kNone) {
            const std::size_t at = next_.fetch_add(1);
            if (at >= reads_.order.size()) return;
            ssize_t size = 0;
            do {
                size = pread(reads_.fd, buffer.get(), reads_.block_bytes,
                             static_cast<off_t>(reads_.offset_bytes(at)));
            } while (size < 0 && (errno == EINTR || errno == EAGAIN));
            if (size > 0) {
                read_bytes_ +=
                    std::min(reads_.expected_bytes(at), static_cast<std::uint64_t>(size));
                continue;
            }
            const auto number = static_cast<std::uint64_t>(size < 0 ? errno : 0);
            std::uint64_t none = kNone;
            failed_.compare_exchange_strong(none, at << kErrnoBits | number);
            return;
        }
    }

    const Reads& reads_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::uint64_t> read_bytes_ = 0;
    std::atomic<std::uint64_t> failed_ = kNone;
};

/// A file of `size_bytes` without a name, of bytes that no drive or file system can compress or
/// share.
IoResult<FileDescriptor> scratch_file(const std::string& folder, std::uint64_t size_bytes) {
    std::string name = folder + "/plimsoll-probe-XXXXXX";
    FileDescriptor file(mkostemp(name.data(), O_CLOEXEC));
    if (file.number() < 0) return call_error("create a file in", folder);
    // Without a name it goes away with the descriptor, also where the program is ended.
    unlink(name.c_str());
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> words(kWriteBytes / sizeof(std::uint64_t));
    for (std::uint64_t at = 0; at < size_bytes;) {
        for (std::uint64_t& word : words) word = random();
        const ssize_t written =
            pwrite(file.number(), words.data(), std::min(kWriteBytes, size_bytes - at),
                   static_cast<off_t>(at));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return call_error("write a file in", folder);
        at += static_cast<std::uint64_t>(written);
    }
    if (fsync(file.number()) != 0) return call_error("fsync a file in", folder);
    return file;
}

IoResult<FileDescriptor> open_subject(const DiskProbe& probe) {
    struct stat facts {};
    if (stat(probe.path.c_str(), &facts) != 0) return call_error("stat", probe.path);
    if (S_ISDIR(facts.st_mode)) return scratch_file(probe.path, probe.span_bytes);
    FileDescriptor file(open(probe.path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.number() < 0) return call_error("open", probe.path);
    return file;
}

IoResult<Reads> plan_reads(const DiskProbe& probe, int fd) {
    struct stat facts {};
    if (fstat(fd, &facts) != 0) return call_error("stat", probe.path);
    Reads reads{.fd = fd,
                .path = probe.path,
                .size_bytes = std::min(probe.span_bytes, static_cast<std::uint64_t>(facts.st_size)),
                .block_bytes = probe.block_bytes,
                .depth = probe.depth,
                .order = {},
                .deadline = {}};
    if (reads.size_bytes == 0) return call_error("read", probe.path, ENODATA);
    reads.order.resize((reads.size_bytes + reads.block_bytes - 1) / reads.block_bytes);
    std::iota(reads.order.begin(), reads.order.end(), std::uint64_t{0});
    std::shuffle(reads.order.begin(), reads.order.end(), std::mt19937_64(1));
    return reads;
}

bool is_sensible(const DiskProbe& probe) {
    return probe.span_bytes > 0 && probe.depth > 0 && probe.block_bytes > 0 &&
           probe.block_bytes % kSectorBytes == 0 &&
           probe.block_bytes <= kBuffersBytesMax / probe.depth;
}

}  // namespace

IoResult<DiskRate> measure_disk(const DiskProbe& probe) {
    if (!is_sensible(probe)) return call_error("probe", probe.path, EINVAL);
    const IoResult<FileDescriptor> file = open_subject(probe);
    if (!file) return file.error();
    IoResult<Reads> reads = plan_reads(probe, file->number());
    if (!reads) return reads.error();

    DiskRate rate;
    if (probe.direct) {
        const AlignedBytes buffer = aligned_bytes(reads->block_bytes);
        const int refused =
            make_direct(*file, std::as_writable_bytes(std::span(buffer.get(), reads->block_bytes)));
        rate.direct = refused == 0;
        if (refused != 0) add_reason(rate.fallback, "O_DIRECT", refused);
    }
    // The next best to no cache is a cold one. Advice: pages in use elsewhere stay.
    if (!rate.direct) posix_fadvise(file->number(), 0, 0, POSIX_FADV_DONTNEED);
    RingReader by_ring(*reads);
    if (probe.ring) {
        const int refused = by_ring.make();
        rate.ring = refused == 0;
        if (refused != 0) add_reason(rate.fallback, "io_uring", refused);
    }

    const Clock::time_point start = Clock::now();
    reads->deadline = start + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(probe.seconds_max));
    const IoResult<std::uint64_t> read_bytes =
        rate.ring ? by_ring.run() : ThreadReader(*reads).run();
    if (!read_bytes) return read_bytes.error();
    rate.read_bytes = *read_bytes;
    rate.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (rate.read_bytes > 0)
        rate.read_bytes_per_s = static_cast<double>(rate.read_bytes) / rate.seconds;
    return rate;
}

}  // namespace plimsoll::offload
