#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "planner/result.hpp"

namespace plimsoll {

/// A read that did not come to its end.
struct ShortRead {
    std::uint64_t offset_bytes = 0;  // of the first byte that is missing
    int error_number = 0;            // errno; 0 where the file ends there
};

/// A file opened for reading at offsets, by any number of threads.
class FileReader {
public:
    /// Error, kind bad_file, where it cannot be opened.
    [[nodiscard]] static Result<FileReader> open(const std::string& path);
    ~FileReader();
    FileReader(FileReader&& other) noexcept;
    FileReader& operator=(FileReader&&) = delete;

    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }

    /// Reads all of `out`, whatever pieces the system returns and however often it is interrupted.
    /// False with `failure` filled where it cannot.
    [[nodiscard]] bool read(std::uint64_t offset_bytes, std::span<std::byte> out,
                            ShortRead& failure) const;

private:
    FileReader(int descriptor, std::uint64_t size_bytes)
        : descriptor_(descriptor), size_bytes_(size_bytes) {}

    int descriptor_;
    std::uint64_t size_bytes_;
};

}  // namespace plimsoll
