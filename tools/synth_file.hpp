#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/result.hpp"
#include "runtime/synthetic_model.hpp"

namespace plimsoll {

/// A stretch of a file.
struct FileRange {
    std::uint64_t first_byte = 0;
    std::uint64_t size_bytes = 0;
    bool operator==(const FileRange&) const = default;
};

struct SynthJob {
    const SyntheticModel* model = nullptr;
    std::string path;
    /// Of the tensors' data: what to write. The rest of the file stays a hole.
    std::vector<FileRange> ranges;
    std::uint32_t threads = 1;
};

/// All tensors of the model, one range each.
[[nodiscard]] std::vector<FileRange> all_ranges(const SyntheticModel& model);

/// Writes the file beside its place and moves it there when it is whole. `go_on` is called from one
/// thread with the bytes done so far; where it returns false, nothing is left behind. Errors: no
/// room on the disk, known before anything is written; a path that cannot be written, with the
/// system's reason; interrupted.
[[nodiscard]] Status write_synthetic_file(const SynthJob& job,
                                          const std::function<bool(std::uint64_t)>& go_on);

}  // namespace plimsoll
