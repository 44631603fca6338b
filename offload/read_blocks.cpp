#include "offload/read_blocks.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace plimsoll::offload {
namespace {

std::uint64_t start_bytes(const FileRange& range) {
    return range.offset_bytes / kSectorBytes * kSectorBytes;
}

}  // namespace

std::uint64_t block_count(const FileRange& range, std::uint64_t block_bytes) {
    const std::uint64_t size_bytes = range.offset_bytes + range.size_bytes - start_bytes(range);
    return (size_bytes + block_bytes - 1) / block_bytes;
}

ReadBlock block_of(const FileRange& range, std::uint64_t index, std::uint64_t block_bytes,
                   bool is_direct) {
    // The first block of a range that is not read directly starts where the range does.
    const std::uint64_t first = start_bytes(range) + index * block_bytes;
    const std::uint64_t last = std::min(first + block_bytes, range.offset_bytes + range.size_bytes);
    const std::uint64_t from = is_direct ? first : std::max(first, range.offset_bytes);
    const std::uint64_t whole_sectors =
        (last - from + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
    return {.range = 0,
            .file = range.file,
            .data = nullptr,
            .offset_bytes = from,
            .size_bytes = is_direct ? whole_sectors : last - from,
            .needed_bytes = last - from,
            .done_bytes = 0,
            .is_direct = is_direct};
}

ReadOutcome after_read(ReadBlock& block, std::int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return ReadOutcome::again;
    if (result < 0) return ReadOutcome::failed;
    const std::uint64_t reached = block.resume_bytes() + static_cast<std::uint64_t>(result);
    // At the end of a file a direct read comes back with the same bytes each time.
    const bool is_further = reached > block.done_bytes;
    if (is_further) block.done_bytes = reached;
    if (block.done_bytes >= block.needed_bytes) return ReadOutcome::done;
    return is_further ? ReadOutcome::again : ReadOutcome::failed;
}

ReadBlocks::ReadBlocks(std::vector<FileRange> ranges, const FileStreamSetting& setting,
                       std::vector<bool> is_direct)
    : ranges_(std::move(ranges)),
      setting_(setting),
      is_direct_(std::move(is_direct)),
      slots_(setting.n_slots) {}

std::optional<ReadBlock> ReadBlocks::take() {
    if (range_ == ranges_.size() || range_ >= n_released_ + slots_.size()) return std::nullopt;
    const FileRange& range = ranges_[range_];
    const std::uint64_t n_blocks = block_count(range, setting_.block_bytes);
    if (block_ == 0) slot_of(range_) = {.n_left = n_blocks, .error = std::nullopt};
    ReadBlock block = block_of(range, block_, setting_.block_bytes, is_direct_[range.file]);
    block.range = range_;
    block.data = setting_.memory.data() + range_ % slots_.size() * setting_.slot_bytes +
                 (block.offset_bytes - start_bytes(range));
    if (++block_ == n_blocks) {
        block_ = 0;
        ++range_;
    }
    return block;
}

bool ReadBlocks::finish(const ReadBlock& block, bool is_read, int error_number) {
    Slot& slot = slot_of(block.range);
    if (!is_read) {
        const IoError error{.action = "read",
                            .path = {},
                            .error_number = error_number,
                            .offset_bytes = block.offset_bytes + block.done_bytes,
                            .size_bytes = block.needed_bytes - block.done_bytes};
        if (!slot.error || error.offset_bytes < slot.error->offset_bytes) slot.error = error;
    }
    return --slot.n_left == 0;
}

bool ReadBlocks::is_next_ready() const {
    // Before `range_` all blocks were taken.
    return n_handed_out_ < range_ && slots_[n_handed_out_ % slots_.size()].n_left == 0;
}

IoResult<std::span<const std::byte>> ReadBlocks::next() {
    const std::size_t at = n_handed_out_++;
    const FileRange& range = ranges_[at];
    const Slot& slot = slot_of(at);
    if (slot.error) return *slot.error;
    const std::byte* start = setting_.memory.data() + at % slots_.size() * setting_.slot_bytes;
    return std::span(start + (range.offset_bytes - start_bytes(range)), range.size_bytes);
}

}  // namespace plimsoll::offload
