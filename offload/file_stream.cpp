#include "offload/file_stream.hpp"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "offload/open_file.hpp"
#include "offload/read_blocks.hpp"

namespace plimsoll::offload {
namespace {

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
        IoResult<OpenFile> file = OpenFile::open(path);
        if (!file) return file.error();
        files.push_back(std::move(*file));
        if (files.back().is_in_memory || !setting.direct || ranges.empty()) continue;
        const int refused =
            make_direct(files.back().descriptor, setting.memory.first(kSectorBytes));
        files.back().is_direct = refused == 0;
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

void FileStream::Parts::read_by_thread() {
    std::unique_lock lock(mutex);
    while (!is_ending) {
        std::optional<ReadBlock> block = blocks->take();
        if (!block) {
            has_work.wait(lock);
            continue;
        }
        lock.unlock();
        const auto [is_read, error_number] = read_whole(files[block->file], *block);
        lock.lock();
        if (blocks->finish(*block, is_read, error_number)) has_range.notify_one();
    }
}

void FileStream::Parts::submit(std::uint32_t entry) {
    const ReadBlock& block = in_flight[entry];
    const std::uint64_t from = block.resume_bytes();
    // One is free: there are as many as blocks in flight.
    io_uring_sqe* request = io_uring_get_sqe(&ring);
    io_uring_prep_read(request, files[block.file].descriptor.number(), block.data + from,
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
