#include "offload/open_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

namespace plimsoll::offload {
namespace {

/// Places of a file that are looked for in the page cache, and how many must be there.
constexpr std::uint64_t kSamples = 64;
constexpr std::uint64_t kSamplesInMemory = kSamples * 9 / 10;

/// Kinds of file systems that lie in memory (statfs(2)).
constexpr std::uint64_t kTmpfs = 0x01021994;
constexpr std::uint64_t kRamfs = 0x858458f6;

/// Whether reading through the page cache needs no drive.
bool lies_in_memory(int descriptor, std::uint64_t size_bytes) {
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

}  // namespace

FileDescriptor::~FileDescriptor() {
    if (number_ >= 0) close(number_);
}

IoResult<OpenFile> OpenFile::open(const std::string& path) {
    FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const int number = descriptor.number();
    struct stat facts {};
    if (number < 0 || fstat(number, &facts) != 0)
        return IoError{.action = "open", .path = path, .error_number = errno};
    return OpenFile{std::move(descriptor),
                    lies_in_memory(number, static_cast<std::uint64_t>(facts.st_size)), false};
}

int make_direct(const FileDescriptor& descriptor, std::span<std::byte> buffer) {
    const int number = descriptor.number();
    const int flags = fcntl(number, F_GETFL);
    if (flags < 0 || fcntl(number, F_SETFL, flags | O_DIRECT) != 0) return errno;
    if (pread(number, buffer.data(), buffer.size(), 0) >= 0) return 0;
    const int refused = errno;
    fcntl(number, F_SETFL, flags);
    return refused;
}

void add_reason(std::string& reasons, const char* what, int error_number) {
    const std::string reason = std::string(what) + ": " + std::strerror(error_number);
    if (reasons.find(reason) != std::string::npos) return;  // another file's
    if (!reasons.empty()) reasons += "; ";
    reasons += reason;
}

std::pair<bool, int> read_whole(const OpenFile& file, ReadBlock& block) {
    for (;;) {
        const std::uint64_t from = block.resume_bytes();
        const ssize_t size =
            pread(file.descriptor.number(), block.data + from, block.size_bytes - from,
                  static_cast<off_t>(block.offset_bytes + from));
        const int error_number = size < 0 ? errno : 0;
        switch (after_read(block, size < 0 ? -error_number : size)) {
            case ReadOutcome::again: continue;
            case ReadOutcome::failed: return {false, error_number};
            case ReadOutcome::done: break;
        }
        // Pages that this read brought in go; those of a file that was there are somebody's.
        if (!file.is_direct && !file.is_in_memory)
            posix_fadvise(file.descriptor.number(), static_cast<off_t>(block.offset_bytes),
                          static_cast<off_t>(block.size_bytes), POSIX_FADV_DONTNEED);
        return {true, 0};
    }
}

}  // namespace plimsoll::offload
