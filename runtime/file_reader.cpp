#include "runtime/file_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "planner/units.hpp"

namespace plimsoll {

Result<FileReader> FileReader::open(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (descriptor < 0 || fstat(descriptor, &facts) != 0) {
        const int error_number = errno;
        if (descriptor >= 0) ::close(descriptor);
        return Error{ErrorKind::bad_file, fmt::format("{}: {}", path, std::strerror(error_number))};
    }
    return FileReader(descriptor, static_cast<std::uint64_t>(facts.st_size));
}

FileReader::~FileReader() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_bytes_(other.size_bytes_) {}

bool FileReader::read(std::uint64_t offset_bytes, std::span<std::byte> out,
                      ShortRead& failure) const {
    // Linux returns at most a little under 2 GiB a call.
    constexpr std::uint64_t kBytesAtOnce = kGiB;
    while (!out.empty()) {
        const ssize_t got = pread(descriptor_, out.data(), std::min(out.size(), kBytesAtOnce),
                                  static_cast<off_t>(offset_bytes));
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) {
            failure = {offset_bytes, got < 0 ? errno : 0};
            return false;
        }
        offset_bytes += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return true;
}

}  // namespace plimsoll
