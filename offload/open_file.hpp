#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "offload/io_result.hpp"
#include "offload/read_blocks.hpp"

namespace plimsoll::offload {

/// Reads in flight by io_uring: as many as keep a PCIe 5 drive busy, and fewer than any kernel
/// takes.
inline constexpr std::uint32_t kRingDepth = 64;
/// Threads that read directly wait for the drive and not for a processor.
inline constexpr std::uint32_t kDirectThreadsMin = 16;

/// A file that ranges are read from, and how its bytes are got at.
struct OpenFile {
    int descriptor = -1;
    bool is_in_memory = false;  // reading through the page cache needs no drive
    bool is_direct = false;     // past the page cache

    [[nodiscard]] static IoResult<OpenFile> open(const std::string& path);

    OpenFile() = default;
    OpenFile(OpenFile&& other) noexcept
        : descriptor(std::exchange(other.descriptor, -1)),
          is_in_memory(other.is_in_memory),
          is_direct(other.is_direct) {}
    OpenFile& operator=(OpenFile&&) = delete;
    ~OpenFile();
};

/// Has the file read past the page cache, unless it is in memory, and tries that with one sector at
/// `sector`: some file systems only refuse then, and some memory is refused as a destination. A
/// refusal is added to `fallback`.
void make_direct(OpenFile& file, std::byte* sector, std::string& fallback);

/// Adds "what: what the system says" to reasons, once.
void add_reason(std::string& reasons, const char* what, int error_number);

/// Reads a block by as many calls as it takes. Whether all needed bytes came, else the errno, 0
/// where the file ended.
[[nodiscard]] std::pair<bool, int> read_whole(const OpenFile& file, ReadBlock& block);

}  // namespace plimsoll::offload
