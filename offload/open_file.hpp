#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

/// A descriptor, closed with its holder. -1: none.
class FileDescriptor {
public:
    explicit FileDescriptor(int number) : number_(number) {}
    FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&&) = delete;
    ~FileDescriptor();
    [[nodiscard]] int number() const { return number_; }

private:
    int number_;
};

/// A file that ranges are read from, and how its bytes are got at.
struct OpenFile {
    FileDescriptor descriptor;
    bool is_in_memory = false;  // reading through the page cache needs no drive
    bool is_direct = false;     // past the page cache

    [[nodiscard]] static IoResult<OpenFile> open(const std::string& path);
};

/// Has the file read past the page cache and tries that with one read into `buffer`, whole sectors
/// at a whole sector: some file systems only refuse then, and some memory is refused as a
/// destination. 0, or the errno of the refusal; the file is then read as before.
[[nodiscard]] int make_direct(const FileDescriptor& descriptor, std::span<std::byte> buffer);

/// Adds "what: what the system says" to reasons, once.
void add_reason(std::string& reasons, const char* what, int error_number);

/// Reads a block by as many calls as it takes. Whether all needed bytes came, else the errno, 0
/// where the file ended.
[[nodiscard]] std::pair<bool, int> read_whole(const OpenFile& file, ReadBlock& block);

}  // namespace plimsoll::offload
