#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/io_result.hpp"

namespace plimsoll::offload {

/// Bytes of a file that are read into one slot.
struct FileRange {
    std::size_t file = 0;  // index into the stream's paths
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;  // 1 to file_range_bytes_max(slot)
};

/// What O_DIRECT asks of offsets, sizes and addresses: the largest logical block of any drive in
/// use.
inline constexpr std::uint64_t kSectorBytes = 4096;

/// The longest range that a slot takes wherever it starts: reads are widened to whole sectors.
[[nodiscard]] constexpr std::uint64_t file_range_bytes_max(std::uint64_t slot_bytes) {
    return slot_bytes < 3 * kSectorBytes ? 0 : slot_bytes - 2 * kSectorBytes;
}

/// Where and how ranges are read.
struct FileStreamSetting {
    std::span<std::byte> memory;   // n_slots slots, each of slot_bytes; starts at a whole sector
    std::uint64_t slot_bytes = 0;  // a multiple of kSectorBytes
    std::uint32_t n_slots = 1;
    std::uint32_t n_threads = 1;          // that copy files which are in memory
    std::uint64_t block_bytes = 1 << 20;  // of one read; a multiple of kSectorBytes
    bool direct = true;                   // past the page cache, where a file is not in memory
    bool ring = true;                     // by io_uring, where the reads are direct
};

/// Reads ranges of files in order, ahead of who consumes them, into slots that take turns:
///
///     range    0   1   2 | 3   4
///     slot     0   1   2 | 0   1          read while range 0 is consumed: 1 and 2;
///              next() ───▶ release()      3 follows once range 0 is released
///
/// A file on a drive is read past the page cache by io_uring, many blocks in flight. One that is in
/// memory already (tmpfs, or nine tenths of it in the page cache) is copied from there by threads,
/// since one alone does not reach the memory's rate. Threads also do what io_uring is refused for.
/// Where O_DIRECT is refused, pages are given back once read. No memory is allocated for contents.
class FileStream {
public:
    /// Opens the files and begins to read. `setting.memory` stays until the stream is gone.
    [[nodiscard]] static IoResult<FileStream> open(const std::vector<std::string>& paths,
                                                   std::vector<FileRange> ranges,
                                                   const FileStreamSetting& setting);
    ~FileStream();
    FileStream(FileStream&&) noexcept;
    FileStream& operator=(FileStream&&) = delete;

    /// The next range's bytes, once they are there: at the same distance from the start of slot
    /// (range index) % n_slots as the range's start has from a whole sector. They stay until
    /// released. To be called once a range, with at most n_slots of them unreleased. The error has
    /// the offset of the first byte that is missing.
    [[nodiscard]] IoResult<std::span<const std::byte>> next();

    /// Gives back the slot of the oldest range that `next` returned and is not released.
    void release();

    /// "io_uring, O_DIRECT" or "8 threads, from memory".
    [[nodiscard]] const std::string& how() const;
    /// Why not as asked, for a person, in one line; empty where it is.
    [[nodiscard]] const std::string& fallback() const;

private:
    struct Parts;
    explicit FileStream(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

}  // namespace plimsoll::offload
