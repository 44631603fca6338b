#pragma once

#include <cstdint>
#include <string>

#include "offload/io_result.hpp"

namespace plimsoll::offload {

/// What to read, and how. The defaults are how experts are read: blocks of 256 KiB in no order,
/// many in flight, past the page cache.
struct DiskProbe {
    /// A file to read, or a folder: there a scratch file of `span_bytes` is written, read and
    /// removed.
    std::string path;
    std::uint64_t span_bytes = std::uint64_t{1} << 30;  // at most; a smaller file is read whole
    std::uint64_t block_bytes = 256 << 10;              // of one read; a multiple of 4,096
    std::uint32_t depth = 64;                           // reads in flight
    double seconds_max = 2;                             // no read is begun after this
    bool direct = true;  // past the page cache where the file system can
    bool ring = true;    // by io_uring where the kernel allows it
};

/// What was reached. No block is read twice, so no cache of the drive's answers for the drive.
struct DiskRate {
    double read_bytes_per_s = 0;
    std::uint64_t read_bytes = 0;
    double seconds = 0;
    bool direct = false;
    bool ring = false;     // false: by threads, one read each
    std::string fallback;  // why not as asked, for a person; empty where it was
};

/// Reads `probe.path` and returns the rate. Where O_DIRECT or io_uring is refused the other way is
/// taken and `fallback` says so. Fails where the path cannot be opened, written or read, with the
/// byte range, and where `probe` asks for nothing (a zero span or depth, a block that is no
/// multiple of 4,096).
[[nodiscard]] IoResult<DiskRate> measure_disk(const DiskProbe& probe);

}  // namespace plimsoll::offload
