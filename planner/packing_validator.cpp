#include <algorithm>

#include "planner/pack.hpp"

// Deliberately naive and on its own: it must not inherit a mistake of the packer it judges.

namespace plimsoll {
namespace {

std::string placed(const Buffer& buffer, std::uint64_t offset_bytes) {
    return "'" + buffer.name + "' (" + std::to_string(buffer.size_bytes) + " bytes at " +
           std::to_string(offset_bytes) + ", ops " + std::to_string(buffer.lifetime.first_op) +
           " to " + std::to_string(buffer.lifetime.last_op) + ")";
}

/// Bytes alive at `op`, each buffer rounded up to its alignment.
std::uint64_t live_bytes_at(std::span<const Buffer> buffers, std::uint32_t op) {
    std::uint64_t bytes = 0;
    for (const Buffer& buffer : buffers) {
        if (op < buffer.lifetime.first_op || op >= buffer.lifetime.last_op) continue;
        const std::uint64_t excess_bytes = buffer.size_bytes % buffer.alignment_bytes;
        bytes += buffer.size_bytes;
        if (excess_bytes != 0) bytes += buffer.alignment_bytes - excess_bytes;
    }
    return bytes;
}

std::optional<std::string> misplacement(std::span<const Buffer> buffers, const Packing& packing) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const std::uint64_t offset_bytes = packing.offset_bytes[i];
        if (offset_bytes % buffers[i].alignment_bytes != 0)
            return placed(buffers[i], offset_bytes) + " is not aligned to " +
                   std::to_string(buffers[i].alignment_bytes);
        if (buffers[i].size_bytes > packing.packed_bytes ||
            offset_bytes > packing.packed_bytes - buffers[i].size_bytes)
            return placed(buffers[i], offset_bytes) + " ends past the region of " +
                   std::to_string(packing.packed_bytes) + " bytes";
    }
    return std::nullopt;
}

std::optional<std::string> overlap(std::span<const Buffer> buffers, const Packing& packing) {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        for (std::size_t j = i + 1; j < buffers.size(); ++j) {
            const Lifetime& a = buffers[i].lifetime;
            const Lifetime& b = buffers[j].lifetime;
            if (a.last_op <= b.first_op || b.last_op <= a.first_op) continue;
            const std::uint64_t a_bytes = packing.offset_bytes[i];
            const std::uint64_t b_bytes = packing.offset_bytes[j];
            if (a_bytes + buffers[i].size_bytes <= b_bytes) continue;
            if (b_bytes + buffers[j].size_bytes <= a_bytes) continue;
            if (buffers[i].size_bytes == 0 || buffers[j].size_bytes == 0) continue;
            return placed(buffers[i], a_bytes) + " overlaps " + placed(buffers[j], b_bytes);
        }
    }
    return std::nullopt;
}

std::optional<std::string> wrong_claim(std::span<const Buffer> buffers, const Packing& packing) {
    std::uint64_t live_bytes_max = 0;
    for (const Buffer& buffer : buffers)
        live_bytes_max = std::max(live_bytes_max, live_bytes_at(buffers, buffer.lifetime.first_op));
    if (packing.lower_bound_bytes != live_bytes_max)
        return "claims a lower bound of " + std::to_string(packing.lower_bound_bytes) +
               " bytes where " + std::to_string(live_bytes_max) + " are alive at once";
    if (packing.packed_bytes < live_bytes_max)
        return "claims " + std::to_string(packing.packed_bytes) + " bytes, fewer than the " +
               std::to_string(live_bytes_max) + " alive at once";
    if (packing.proven_min_bytes < live_bytes_max)
        return "claims a proven minimum of " + std::to_string(packing.proven_min_bytes) +
               " bytes, below its own lower bound";
    if (packing.packed_bytes < packing.proven_min_bytes)
        return "is smaller than what it claims to be the minimum, " +
               std::to_string(packing.proven_min_bytes) + " bytes";
    if (packing.optimal != (packing.packed_bytes == packing.proven_min_bytes))
        return std::string("claims to be ") + (packing.optimal ? "optimal" : "improvable") +
               " against its proven minimum";
    return std::nullopt;
}

}  // namespace

std::optional<std::string> validate_packing(std::span<const Buffer> buffers,
                                            const Packing& packing) {
    if (packing.offset_bytes.size() != buffers.size())
        return std::to_string(packing.offset_bytes.size()) + " offsets for " +
               std::to_string(buffers.size()) + " buffers";
    if (std::optional<std::string> problem = misplacement(buffers, packing)) return problem;
    if (std::optional<std::string> problem = overlap(buffers, packing)) return problem;
    return wrong_claim(buffers, packing);
}

}  // namespace plimsoll
