#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "planner/result.hpp"

namespace plimsoll {

/// Rows of float32 in native byte order, one after the other and nothing else: what checks compare.
class RowFile {
public:
    /// Creates or empties the file. An error, kind bad_file, where it cannot.
    [[nodiscard]] static Result<RowFile> create(const std::string& path);

    /// Appends rows. An error, kind io, where the disk takes no more.
    [[nodiscard]] Status write(std::span<const float> rows);

    /// Nothing follows: what is buffered goes to the disk.
    [[nodiscard]] Status close();

private:
    struct CloseFile {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    RowFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

    std::string path_;
    std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace plimsoll
