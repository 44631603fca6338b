#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "planner/result.hpp"
#include "runtime/file_reader.hpp"
#include "runtime/tensor_load.hpp"

namespace plimsoll {

/// The files that loads come from, opened.
class LoadFiles {
public:
    /// Refuses a file that has grown since it was planned with (kind bad_file).
    [[nodiscard]] Status open(std::span<const TensorLoad> loads);

    /// Bytes [offset_bytes, offset_bytes + out.size()) of a load. The error, kind io, names the
    /// tensor, the file and the offset.
    [[nodiscard]] Status read(const TensorLoad& load, std::uint64_t offset_bytes,
                              std::span<std::byte> out) const;

private:
    std::map<const Model*, FileReader> files_;
};

/// What `read` returns where a byte of the load is missing.
[[nodiscard]] Error read_error(const TensorLoad& load, const ShortRead& failure);

/// Whether a piece of a routing table names experts below n_experts alone: it is checked here,
/// once, and not at every token. `offset_bytes` is the piece's, in the load; other tensors pass.
/// Error, kind bad_file.
[[nodiscard]] Status check_routing_table(const TensorLoad& load, std::uint64_t offset_bytes,
                                         std::span<const std::byte> piece);

}  // namespace plimsoll
