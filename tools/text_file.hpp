#pragma once

#include <string>

#include "planner/result.hpp"

namespace plimsoll {

/// All of a file of at most 64 MiB. An error, kind bad_file, names the path and the system's
/// reason.
[[nodiscard]] Result<std::string> read_text_file(const std::string& path);

/// Writes or replaces a file; "-" is the standard output. An error, kind bad_file, as above.
[[nodiscard]] Status write_text_file(const std::string& path, const std::string& text);

/// Writes to the standard output. An error, kind io, where it takes no more.
[[nodiscard]] Status print_text(const std::string& text);

}  // namespace plimsoll
