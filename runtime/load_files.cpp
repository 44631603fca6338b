#include "runtime/load_files.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "planner/units.hpp"

namespace plimsoll {

Status LoadFiles::open(std::span<const TensorLoad> loads) {
    for (const TensorLoad& load : loads) {
        if (files_.contains(load.model)) continue;
        Result<FileReader> file = FileReader::open(load.model->path);
        if (!file) return file.error();
        const std::uint64_t planned_bytes = load.model->file_bytes;
        if (planned_bytes != 0 && file->size_bytes() > planned_bytes)
            return Error{
                ErrorKind::bad_file,
                fmt::format("{} has {} bytes and had {} when the plan was made: plan again",
                            load.model->path, format_count(file->size_bytes()),
                            format_count(planned_bytes))};
        files_.emplace(load.model, std::move(*file));
    }
    return ok_status();
}

Status LoadFiles::read(const TensorLoad& load, std::uint64_t offset_bytes,
                       std::span<std::byte> out) const {
    ShortRead failure;
    if (files_.at(load.model).read(load.file_offset_bytes() + offset_bytes, out, failure))
        return ok_status();
    return read_error(load, failure);
}

Error read_error(const TensorLoad& load, const ShortRead& failure) {
    const std::string reason =
        failure.error_number == 0 ? "the file ends there" : std::strerror(failure.error_number);
    return {ErrorKind::io, fmt::format("{}: {} cannot be read at byte {} ({} of its {} bytes): {}",
                                       load.model->path, load.tensor->name, failure.offset_bytes,
                                       failure.offset_bytes - load.tensor->file_offset_bytes,
                                       load.tensor->size_bytes, reason)};
}

Status check_routing_table(const TensorLoad& load, std::uint64_t offset_bytes,
                           std::span<const std::byte> piece) {
    if (load.tensor->role != TensorRole::ffn_gate_tid2eid) return ok_status();
    const std::uint64_t n_experts = load.model->hyper.n_experts;
    const std::uint64_t first = (load.offset_bytes + offset_bytes) / sizeof(std::int32_t);
    for (std::uint64_t at = 0; at < piece.size() / sizeof(std::int32_t); ++at) {
        std::int32_t id = 0;
        std::memcpy(&id, piece.data() + at * sizeof(id), sizeof(id));
        if (id < 0 || static_cast<std::uint64_t>(id) >= n_experts)
            return Error{
                ErrorKind::bad_file,
                fmt::format("{}: {} names expert {} at entry {}, and there are {}",
                            load.model->path, load.tensor->name, id, first + at, n_experts)};
    }
    return ok_status();
}

}  // namespace plimsoll
