#include "tools/file_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "offload/file_stream.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

// As the GPU's loader has them.
constexpr std::uint32_t kSlots = 8;
constexpr std::uint64_t kSlotBytes = 8 * kMiB;
constexpr std::uint64_t kReadBytes = 512 * kKiB;
constexpr double kSecondsMax = 3;

struct FreeBytes {
    void operator()(std::byte* bytes) const { std::free(bytes); }
};

Error error_of(const offload::IoError& error) { return {ErrorKind::io, offload::describe(error)}; }

}  // namespace

Result<FileRate> measure_file(const std::string& path) {
    std::error_code failed;
    const std::uint64_t size_bytes = std::filesystem::file_size(path, failed);
    if (failed || size_bytes == 0)
        return Error{ErrorKind::io,
                     fmt::format("{}: {}", path, failed ? failed.message() : "an empty file")};
    std::vector<offload::FileRange> ranges;
    const std::uint64_t range_bytes = offload::file_range_bytes_max(kSlotBytes);
    for (std::uint64_t at = 0; at < size_bytes; at += range_bytes)
        ranges.push_back({0, at, std::min(range_bytes, size_bytes - at)});
    const std::unique_ptr<std::byte, FreeBytes> memory(
        static_cast<std::byte*>(std::aligned_alloc(offload::kSectorBytes, kSlots * kSlotBytes)));
    // Pages that come with the first read are no property of the file.
    std::fill_n(memory.get(), kSlots * kSlotBytes, std::byte{0});

    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const auto elapsed = [&] {
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    offload::IoResult<offload::FileStream> stream =
        offload::FileStream::open({path}, ranges,
                                  {.memory = {memory.get(), kSlots * kSlotBytes},
                                   .slot_bytes = kSlotBytes,
                                   .n_slots = kSlots,
                                   .n_threads = std::max(1u, std::thread::hardware_concurrency()),
                                   .block_bytes = kReadBytes});
    if (!stream) return error_of(stream.error());
    std::uint64_t read_bytes = 0;
    for (std::size_t at = 0; at < ranges.size() && elapsed() < kSecondsMax; ++at) {
        const auto bytes = stream->next();
        if (!bytes) return error_of(bytes.error());
        read_bytes += bytes->size();
        stream->release();
    }
    FileRate rate{.read_bytes_per_s = static_cast<double>(read_bytes) / elapsed(),
                  .how = fmt::format("{} of it, {}", format_bytes(read_bytes), stream->how())};
    if (!stream->fallback().empty()) rate.how += fmt::format(" ({})", stream->fallback());
    return rate;
}

}  // namespace plimsoll
