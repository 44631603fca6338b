#include "tools/row_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace plimsoll {
namespace {

Error failure(ErrorKind kind, const std::string& path) {
    return {kind, fmt::format("{}: {}", path, std::strerror(errno))};
}

}  // namespace

Result<RowFile> RowFile::create(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) return failure(ErrorKind::bad_file, path);
    return RowFile(path, file);
}

Status RowFile::write(std::span<const float> rows) {
    if (std::fwrite(rows.data(), sizeof(float), rows.size(), file_.get()) == rows.size()) {
        return ok_status();
    }
    return failure(ErrorKind::io, path_);
}

Status RowFile::close() {
    // Closing writes what is buffered, so a full disk may only show here.
    if (std::fclose(file_.release()) == 0) return ok_status();
    return failure(ErrorKind::io, path_);
}

}  // namespace plimsoll
