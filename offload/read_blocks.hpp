#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/file_stream.hpp"
#include "offload/io_result.hpp"

namespace plimsoll::offload {

/// One read of a stream on its way, perhaps in several pieces.
struct ReadBlock {
    std::size_t range = 0;
    std::size_t file = 0;
    std::byte* data = nullptr;
    std::uint64_t offset_bytes = 0;  // in the file
    std::uint64_t size_bytes = 0;    // asked for: whole sectors where the file is read directly
    std::uint64_t needed_bytes = 0;  // of these; the rest is widening and may lie past the end
    std::uint64_t done_bytes = 0;    // that came
    bool is_direct = false;

    /// Where the next piece starts: a direct read goes on at a whole sector.
    [[nodiscard]] std::uint64_t resume_bytes() const {
        return is_direct ? done_bytes / kSectorBytes * kSectorBytes : done_bytes;
    }
};

/// What a piece that returned `result` (bytes, or minus an errno) leaves to do.
enum class ReadOutcome : std::uint8_t { done, again, failed };
[[nodiscard]] ReadOutcome after_read(ReadBlock& block, std::int64_t result);

/// Blocks of `block_bytes` that a range is read in. They start at whole sectors, and the first at
/// the one that holds the range's start.
[[nodiscard]] std::uint64_t block_count(const FileRange& range, std::uint64_t block_bytes);
/// Block `index` of these: all of its sectors where the file is read directly, else the range's own
/// bytes. `data` is left null and `range` 0.
[[nodiscard]] ReadBlock block_of(const FileRange& range, std::uint64_t index,
                                 std::uint64_t block_bytes, bool is_direct);

/// Which blocks of which ranges are to be read, are being read and were: the bookkeeping of a
/// stream, without files or threads.
class ReadBlocks {
public:
    ReadBlocks(std::vector<FileRange> ranges, const FileStreamSetting& setting,
               std::vector<bool> is_direct);

    /// The next block in order whose slot is free; nothing where there is none now.
    [[nodiscard]] std::optional<ReadBlock> take();
    /// The block is read, or failed with `error_number` (0: the file ended). True where it was the
    /// last of its range.
    bool finish(const ReadBlock& block, bool is_read, int error_number);

    /// Whether all blocks of the range that `next` hands out are finished.
    [[nodiscard]] bool is_next_ready() const;
    /// The range's bytes; the failure nearest to its start, whose path is left empty.
    [[nodiscard]] IoResult<std::span<const std::byte>> next();
    void release() { ++n_released_; }

    /// The file of the range that `next` hands out.
    [[nodiscard]] std::size_t next_file() const { return ranges_[n_handed_out_].file; }
    [[nodiscard]] std::size_t n_unreleased() const { return n_handed_out_ - n_released_; }
    [[nodiscard]] bool has_next() const { return n_handed_out_ < ranges_.size(); }

private:
    struct Slot {
        std::uint64_t n_left = 0;  // blocks
        std::optional<IoError> error;
    };

    [[nodiscard]] Slot& slot_of(std::size_t range) { return slots_[range % slots_.size()]; }

    std::vector<FileRange> ranges_;
    FileStreamSetting setting_;
    std::vector<bool> is_direct_;  // by file
    std::vector<Slot> slots_;
    std::size_t range_ = 0;    // of the block that `take` looks at
    std::uint64_t block_ = 0;  // of that range
    std::size_t n_handed_out_ = 0;
    std::size_t n_released_ = 0;
};

}  // namespace plimsoll::offload
