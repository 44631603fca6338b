#include "tools/text_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace plimsoll {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{64} << 20;

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Error file_error(const std::string& path, const char* reason) {
    return {ErrorKind::bad_file, fmt::format("{}: {}", path, reason)};
}

}  // namespace

Result<std::string> read_text_file(const std::string& path) {
    const File file(std::fopen(path.c_str(), "rb"));
    if (!file) return file_error(path, std::strerror(errno));
    std::string text;
    char block[1 << 14];
    while (const std::size_t size = std::fread(block, 1, sizeof block, file.get())) {
        text.append(block, size);
        if (text.size() > kTextBytesMax) return file_error(path, "larger than 64 MiB");
    }
    if (std::ferror(file.get()) != 0) return file_error(path, std::strerror(errno));
    return text;
}

Status write_text_file(const std::string& path, const std::string& text) {
    if (path == "-") return print_text(text);
    File file(std::fopen(path.c_str(), "wb"));
    if (!file) return file_error(path, std::strerror(errno));
    const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
    // Closing writes what is buffered, so a full disk may only show here.
    if (std::fclose(file.release()) != 0 || !written) return file_error(path, std::strerror(errno));
    return ok_status();
}

Status print_text(const std::string& text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
    if (!written || std::fflush(stdout) != 0)
        return Error{ErrorKind::io, fmt::format("standard output: {}", std::strerror(errno))};
    return ok_status();
}

}  // namespace plimsoll
