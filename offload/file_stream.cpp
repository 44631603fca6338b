#include "offload/file_stream.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "offload/read_blocks.hpp"

namespace plimsoll::offload {
namespace {

/// Reads in flight by io_uring: as many as keep a PCIe 5 drive busy, and fewer than any kernel
/// takes.
constexpr std::uint32_t kRingDepth = 64;
/// Threads that read directly wait for the drive and not for a processor.
constexpr std::uint32_t kDirectThreadsMin = 16;
/// Places of a file that are looked for in the page cache, and how many must be there.
constexpr std::uint64_t kSamples = 64;
constexpr std::uint64_t kSamplesInMemory = kSamples * 9 / 10;

/// Kinds of file systems that lie in memory (statfs(2)).
constexpr std::uint64_t kTmpfs = 0x01021994;
constexpr std::uint64_t kRamfs = 0x858458f6;

/// A file of the stream and how its bytes are got at.
struct OpenFile {
    int descriptor = -1;
    bool is_in_memory = false;
    bool is_direct = false;

    OpenFile() = default;
    OpenFile(OpenFile&& other) noexcept
        : descriptor(std::exchange(other.descriptor, -1)),
          is_in_memory(other.is_in_memory),
          is_direct(other.is_direct) {}
    OpenFile& operator=(OpenFile&&) = delete;
    ~OpenFile() {
        if (descriptor >= 0) close(descriptor);
    }
};

/// Whether reading through the page cache needs no drive.
bool is_in_memory(int descriptor, std::uint64_t size_bytes) {
    struct statfs system {};
    if (fstatfs(descriptor, &system) == 0 && (static_cast<std::uint64_t>(system.f_type) == kTmpfs ||
                                              static_cast<std::uint64_t>(system.f_type) == kRamfs))
        return true;
    // A page that is looked for may be read in by that (Linux 5.16). So of all pages others are
    // looked for each time, and none ahead of them come along.
    std::mt19937_64 random(
        static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    std::uint64_t n_found = 0;
    for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
        char byte = 0;
        const iovec into{.iov_base = &byte, .iov_len = 1};
        const auto at = static_cast<off_t>(random() % std::max<std::uint64_t>(size_bytes, 1));
        n_found += preadv2(descriptor, &into, 1, at, RWF_NOWAIT) == 1 ? 1 : 0;
    }
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_NORMAL);
    return n_found >= kSamplesInMemory;
}

/// Turns the page cache off and tries one sector: some file systems only refuse then, and some
/// memory is refused as a destination. 0, or why not.
int make_direct(int descriptor, std::byte* sector) {
    const int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) return errno;
    if (pread(descriptor, sector, kSectorBytes, 0) >= 0) return 0;
    const int refused = errno;
    fcntl(descriptor, F_SETFL, flags);
    return refused;
}

void add_reason(std::string& reasons, const char* what, int error_number) {
    const std::string reason = std::string(what) + ": " + std::strerror(error_number);
    if (reasons.find(reason) != std::string::npos) return;  // another file's
    if (!reasons.empty()) reasons += "; ";
    reasons += reason;
}

bool is_sensible(const FileStreamSetting& setting, const std::vector<FileRange>& ranges,
                 std::size_t n_files) {
    const auto is_whole = [](std::uint64_t bytes) {
        return bytes != 0 && bytes % kSectorBytes == 0;
    };
    const bool has_place =
        setting.n_slots != 0 && is_whole(setting.slot_bytes) && is_whole(setting.block_bytes) &&
        reinterpret_cast<std::uintptr_t>(setting.memory.data()) % kSectorBytes == 0 &&
        setting.memory.size() / setting.n_slots >= setting.slot_bytes;
    return has_place && std::all_of(ranges.begin(), ranges.end(), [&](const FileRange& range) {
               return range.file < n_files && range.size_bytes != 0 &&
                      range.size_bytes <= file_range_bytes_max(setting.slot_bytes);
           });
}

}  // namespace

/// Either `threads` read, or whoever calls `next` drives the ring.
struct FileStream::Parts {
    std::vector<std::string> paths;
    std::vector<OpenFile> files;
    std::string how;
    std::string fallback;

    std::mutex mutex;
    std::condition_variable has_work;   // for threads: a slot is free, or the end
    std::condition_variable has_range;  // for `next`: a range is read
    // Guarded by `mutex`.
    std::optional<ReadBlocks> blocks;
    bool is_ending = false;
    std::vector<std::thread> threads;

    io_uring ring{};
    bool has_ring = false;
    ReadBlock in_flight[kRingDepth];
    std::vector<std::uint32_t> idle;  // indices of in_flight

    ~Parts();
    std::optional<IoError> open_files(const std::vector<FileRange>& ranges,
                                      const FileStreamSetting& setting);
    void start(std::vector<FileRange> ranges, const FileStreamSetting& setting);
    void read_by_thread();
    std::pair<bool, int> read_whole(ReadBlock& block) const;
    void submit(std::uint32_t entry);
    void fill_ring();
    void reap();
    [[nodiscard]] std::optional<IoError> drive_ring();
    void end_ring();
};

FileStream::Parts::~Parts() {
    {
        const std::lock_guard lock(mutex);
        is_ending = true;
    }
    has_work.notify_all();
    for (std::thread& thread : threads) thread.join();
    if (has_ring) end_ring();
}

std::optional<IoError> FileStream::Parts::open_files(const std::vector<FileRange>& ranges,
                                                     const FileStreamSetting& setting) {
    for (const std::string& path : paths) {
        OpenFile& file = files.emplace_back();
        struct stat facts {};
        file.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file.descriptor < 0 || fstat(file.descriptor, &facts) != 0)
            return IoError{.action = "open", .path = path, .error_number = errno};
        file.is_in_memory =
            is_in_memory(file.descriptor, static_cast<std::uint64_t>(facts.st_size));
        if (file.is_in_memory || !setting.direct || ranges.empty()) continue;
        const int refused = make_direct(file.descriptor, setting.memory.data());
        file.is_direct = refused == 0;
        if (refused != 0) add_reason(fallback, "O_DIRECT", refused);
    }
    return std::nullopt;
}

void FileStream::Parts::start(std::vector<FileRange> ranges, const FileStreamSetting& setting) {
    std::vector<bool> is_direct;
    for (const OpenFile& file : files) is_direct.push_back(file.is_direct);
    const bool all_direct = std::find(is_direct.begin(), is_direct.end(), false) == is_direct.end();
    const bool any_direct = std::find(is_direct.begin(), is_direct.end(), true) != is_direct.end();
    const bool all_in_memory = std::all_of(files.begin(), files.end(),
                                           [](const OpenFile& file) { return file.is_in_memory; });
    blocks.emplace(std::move(ranges), setting, std::move(is_direct));
    if (all_direct && setting.ring) {
        const int refused = -io_uring_queue_init(kRingDepth, &ring, 0);
        has_ring = refused == 0;
        if (!has_ring) add_reason(fallback, "io_uring", refused);
    }
    if (has_ring) {
        how = "io_uring, O_DIRECT";
        for (std::uint32_t entry = 0; entry < kRingDepth; ++entry) idle.push_back(entry);
        fill_ring();
        io_uring_submit(&ring);
        return;
    }
    const std::uint32_t n_threads =
        std::max(std::max(1u, setting.n_threads), any_direct ? kDirectThreadsMin : 1);
    how = std::to_string(n_threads) + (n_threads == 1 ? " thread, " : " threads, ") +
          (all_direct      ? "O_DIRECT"
           : all_in_memory ? "from memory"
                           : "through the page cache");
    for (std::uint32_t thread = 0; thread < n_threads; ++thread)
        threads.emplace_back([this] { read_by_thread(); });
}

/// Whether all needed bytes came, else why not.
std::pair<bool, int> FileStream::Parts::read_whole(ReadBlock& block) const {
    const OpenFile& file = files[block.file];
    for (;;) {
        const std::uint64_t from = block.resume_bytes();
        const ssize_t size = pread(file.descriptor, block.data + from, block.size_bytes - from,
                                   static_cast<off_t>(block.offset_bytes + from));
        const int error_number = size < 0 ? errno : 0;
        switch (after_read(block, size < 0 ? -error_number : size)) {
            case ReadOutcome::again: continue;
            case ReadOutcome::failed: return {false, error_number};
            case ReadOutcome::done: break;
        }
        // Pages that this read brought in go; those of a file that was there are somebody's.
        if (!file.is_direct && !file.is_in_memory)
            posix_fadvise(file.descriptor, static_cast<off_t>(block.offset_bytes),
                          static_cast<off_t>(block.size_bytes), POSIX_FADV_DONTNEED);
        return {true, 0};
    }
}

void FileStream::Parts::read_by_thread() {
    std::unique_lock lock(mutex);
    while (!is_ending) {
        std::optional<ReadBlock> block = blocks->take();
        if (!block) {
            has_work.wait(lock);
            continue;
        }
        lock.unlock();
        const auto [is_read, error_number] = read_whole(*block);
        lock.lock();
        if (blocks->finish(*block, is_read, error_number)) has_range.notify_one();
    }
}

void FileStream::Parts::submit(std::uint32_t entry) {
    const ReadBlock& block = in_flight[entry];
    const std::uint64_t from = block.resume_bytes();
    // One is free: there are as many as blocks in flight.
    io_uring_sqe* request = io_uring_get_sqe(&ring);
    io_uring_prep_read(request, files[block.file].descriptor, block.data + from,
                       static_cast<unsigned>(block.size_bytes - from), block.offset_bytes + from);
    io_uring_sqe_set_data64(request, entry);
}

void FileStream::Parts::fill_ring() {
    while (!idle.empty()) {
        const std::optional<ReadBlock> block = blocks->take();
        if (!block) return;
        in_flight[idle.back()] = *block;
        submit(idle.back());
        idle.pop_back();
    }
}

void FileStream::Parts::reap() {
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&ring, &done) == 0) {
        const auto entry = static_cast<std::uint32_t>(io_uring_cqe_get_data64(done));
        const int result = done->res;
        io_uring_cqe_seen(&ring, done);
        const ReadOutcome outcome = after_read(in_flight[entry], result);
        if (outcome == ReadOutcome::again && !is_ending) {
            submit(entry);
            continue;
        }
        blocks->finish(in_flight[entry], outcome == ReadOutcome::done, result < 0 ? -result : 0);
        idle.push_back(entry);
    }
}

/// Until the next range is read.
std::optional<IoError> FileStream::Parts::drive_ring() {
    for (;;) {
        reap();
        fill_ring();
        const bool is_ready = blocks->is_next_ready();
        const int submitted =
            is_ready ? io_uring_submit(&ring) : io_uring_submit_and_wait(&ring, 1);
        if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
            return IoError{.action = "io_uring_enter",
                           .path = paths[blocks->next_file()],
                           .error_number = -submitted};
        if (is_ready) return std::nullopt;
    }
}

/// The kernel writes to the slots until every read is back.
void FileStream::Parts::end_ring() {
    while (idle.size() < kRingDepth) {
        const int submitted = io_uring_submit_and_wait(&ring, 1);
        if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY)
            break;
        reap();
    }
    io_uring_queue_exit(&ring);
}

IoResult<FileStream> FileStream::open(const std::vector<std::string>& paths,
                                      std::vector<FileRange> ranges,
                                      const FileStreamSetting& setting) {
    if (!is_sensible(setting, ranges, paths.size()))
        return IoError{.action = "stream",
                       .path = paths.empty() ? "no file" : paths.front(),
                       .error_number = EINVAL};
    auto parts = std::make_unique<Parts>();
    parts->paths = paths;
    if (std::optional<IoError> problem = parts->open_files(ranges, setting)) return *problem;
    parts->start(std::move(ranges), setting);
    return FileStream(std::move(parts));
}

FileStream::FileStream(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
FileStream::~FileStream() = default;
FileStream::FileStream(FileStream&&) noexcept = default;

IoResult<std::span<const std::byte>> FileStream::next() {
    Parts& parts = *parts_;
    std::unique_lock lock(parts.mutex);
    const std::string& path = parts.paths[parts.blocks->next_file()];
    if (parts.has_ring) {
        if (std::optional<IoError> problem = parts.drive_ring()) return *problem;
    } else {
        parts.has_range.wait(lock, [&] { return parts.blocks->is_next_ready(); });
    }
    IoResult<std::span<const std::byte>> bytes = parts.blocks->next();
    if (bytes) return bytes;
    IoError error = bytes.error();
    error.path = path;
    return error;
}

void FileStream::release() {
    Parts& parts = *parts_;
    {
        const std::lock_guard lock(parts.mutex);
        parts.blocks->release();
        if (parts.has_ring) {
            parts.reap();
            parts.fill_ring();
            io_uring_submit(&parts.ring);
        }
    }
    parts.has_work.notify_all();
}

const std::string& FileStream::how() const { return parts_->how; }
const std::string& FileStream::fallback() const { return parts_->fallback; }

}  // namespace plimsoll::offload
