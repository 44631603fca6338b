#include "kernels/cpu/row_io.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cache_rounding.hpp"
#include "kernels/check.hpp"
#include "kernels/half.hpp"

namespace plimsoll::kernels::cpu {
namespace {

constexpr std::array<float, 256> make_e4m3_values() {
    std::array<float, 256> values{};
    for (std::uint32_t code = 0; code < 256; ++code)
        values[code] = f32_from_e4m3(static_cast<std::uint8_t>(code));
    return values;
}
constexpr std::array<float, 256> kE4m3Values = make_e4m3_values();

constexpr std::array<float, 16> make_e2m1_values() {
    std::array<float, 16> values{};
    for (std::uint32_t code = 0; code < 16; ++code)
        values[code] = f32_from_e2m1(static_cast<std::uint8_t>(code));
    return values;
}
constexpr std::array<float, 16> kE2m1Values = make_e2m1_values();

/// The planes of one row of a packed region.
struct PackedRow {
    std::uint8_t* codes;
    std::uint8_t* exponents;
    std::uint8_t* tail;
};

PackedRow packed_row(void* base, const PlaneOffsets& offsets, std::uint64_t slot,
                     std::uint64_t tail_bytes) {
    auto* bytes = static_cast<std::uint8_t*>(base);
    return {bytes + slot * offsets.code_stride_bytes,
            bytes + offsets.exponents_bytes + slot * offsets.exponent_stride_bytes,
            bytes + offsets.tail_bytes + slot * tail_bytes};
}

PackedRow packed_kv_row(const KvRows& region, std::uint64_t slot) {
    return packed_row(region.base,
                      kv_plane_offsets(region.row_capacity, region.head_dim, region.rope_dim), slot,
                      std::uint64_t{region.rope_dim} * 2);
}
PackedRow packed_indexer_row(const IndexerRows& region, std::uint64_t slot) {
    return packed_row(region.base, indexer_plane_offsets(region.row_capacity, region.dim), slot, 0);
}

}  // namespace

void store_kv_row(const KvRows& region, std::uint64_t slot, const float* row) {
    PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "KV row outside its region");
    if (region.format == KvFormat::f32) {
        std::memcpy(static_cast<float*>(region.base) + slot * region.head_dim, row,
                    region.head_dim * sizeof(float));
        return;
    }
    const std::uint32_t n_rounded = region.head_dim - region.rope_dim;
    const PackedRow packed = packed_kv_row(region, slot);
    fp8_encode(row, n_rounded, packed.codes, packed.exponents);
    for (std::uint32_t i = 0; i < region.rope_dim; ++i) {
        const std::uint16_t half = f16_from_f32(row[n_rounded + i]);
        std::memcpy(packed.tail + 2 * i, &half, 2);
    }
}

void load_kv_row(const KvRows& region, std::uint64_t slot, float* row) {
    PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "KV row outside its region");
    if (region.format == KvFormat::f32) {
        std::memcpy(row, static_cast<const float*>(region.base) + slot * region.head_dim,
                    region.head_dim * sizeof(float));
        return;
    }
    const std::uint32_t n_rounded = region.head_dim - region.rope_dim;
    const PackedRow packed = packed_kv_row(region, slot);
    for (std::uint32_t first = 0; first < n_rounded; first += kFp8Block) {
        const float scale = power_of_two(exponent_from_stored(packed.exponents[first / kFp8Block]));
        const std::uint32_t last = std::min(first + kFp8Block, n_rounded);
        for (std::uint32_t i = first; i < last; ++i) row[i] = kE4m3Values[packed.codes[i]] * scale;
    }
    for (std::uint32_t i = 0; i < region.rope_dim; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, packed.tail + 2 * i, 2);
        row[n_rounded + i] = f32_from_f16(half);
    }
}

void store_indexer_row(const IndexerRows& region, std::uint64_t slot, const float* row) {
    PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "indexer row outside its region");
    if (region.format == KvFormat::f32) {
        std::memcpy(static_cast<float*>(region.base) + slot * region.dim, row,
                    region.dim * sizeof(float));
        return;
    }
    const PackedRow packed = packed_indexer_row(region, slot);
    fp4_encode(row, region.dim, packed.codes, packed.exponents);
}

void load_indexer_row(const IndexerRows& region, std::uint64_t slot, float* row) {
    PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "indexer row outside its region");
    if (region.format == KvFormat::f32) {
        std::memcpy(row, static_cast<const float*>(region.base) + slot * region.dim,
                    region.dim * sizeof(float));
        return;
    }
    const PackedRow packed = packed_indexer_row(region, slot);
    for (std::uint32_t first = 0; first < region.dim; first += kFp4Block) {
        const float scale = power_of_two(exponent_from_stored(packed.exponents[first / kFp4Block]));
        const std::uint32_t last = std::min(first + kFp4Block, region.dim);
        for (std::uint32_t i = first; i < last; i += 2) {
            const std::uint8_t pair = packed.codes[i / 2];
            row[i] = kE2m1Values[pair & 15u] * scale;
            row[i + 1] = kE2m1Values[pair >> 4] * scale;
        }
    }
}

const float* kv_row(const KvRows& region, std::uint64_t slot, float* decoded) {
    if (region.format == KvFormat::f32) {
        PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "KV row outside its region");
        return static_cast<const float*>(region.base) + slot * region.head_dim;
    }
    load_kv_row(region, slot, decoded);
    return decoded;
}

const float* indexer_row(const IndexerRows& region, std::uint64_t slot, float* decoded) {
    if (region.format == KvFormat::f32) {
        PLIMSOLL_KERNEL_CHECK(slot < region.row_capacity, "indexer row outside its region");
        return static_cast<const float*>(region.base) + slot * region.dim;
    }
    load_indexer_row(region, slot, decoded);
    return decoded;
}

void round_kv_row(float* row, std::uint32_t head_dim, std::uint32_t rope_dim, KvFormat format,
                  CacheRounding rounding) {
    PLIMSOLL_KERNEL_CHECK(format == KvFormat::f32 || rounding == CacheRounding::on,
                          "packed rows hold only rounded values");
    if (rounding == CacheRounding::on) fp8_round(row, head_dim - rope_dim);
    if (format == KvFormat::packed)
        for (std::uint32_t i = head_dim - rope_dim; i < head_dim; ++i)
            row[i] = f32_from_f16(f16_from_f32(row[i]));
}

}  // namespace plimsoll::kernels::cpu
