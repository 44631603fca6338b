#pragma once

// Decoders of the weight formats (GGML block layouts). Included only by the leaf files.

#include "kernels/cpu/lanes.hpp"
#include "kernels/cpu/leaf.hpp"
#include "kernels/iq2_tables.hpp"

namespace plimsoll::kernels::cpu {
namespace {

/// Elements that are decoded at a time: the largest block.
constexpr std::uint32_t kStep = 256;

/// A block of 256 weights in integers: w = d * scale * (signed) q - dmin * min.
struct IntegerBlock {
    alignas(64) std::uint8_t q[256];     // magnitudes
    alignas(64) std::int8_t sign[256];   // +1 or -1; only written by formats with kSigned
    alignas(64) std::int16_t scale[16];  // by 16 elements
    alignas(64) std::int16_t min[16];    // by 16 elements; only written by formats with kMins
    float d;
    float dmin;
};

/// Signs of 8 elements as bytes +1 or -1, element 0 lowest.
struct SignBytes {
    std::uint64_t word[128];
};
constexpr SignBytes make_sign_bytes() {
    SignBytes table{};
    for (std::uint32_t index = 0; index < 128; ++index) {
        const std::uint32_t mask = iq2_xxs_signs(index);
        for (std::uint32_t j = 0; j < 8; ++j)
            table.word[index] |= std::uint64_t{(mask >> j) & 1u ? 0xffu : 0x01u} << (8 * j);
    }
    return table;
}
constexpr SignBytes kSignBytes = make_sign_bytes();

struct Iq2Xxs {
    static constexpr bool kSigned = true;
    static constexpr bool kMins = false;
    static constexpr std::uint32_t kBytes = 66;

    static void integers(const std::byte* block, IntegerBlock& out) {
        // scale = d * (2 * code + 1) / 8, the eighth kept in d.
        out.d = load_half(block) * 0.125f;
        out.dmin = 0.0f;
        for (std::uint32_t g = 0; g < 8; ++g) {
            // Fields lie at multiples of 2 only, hence the copy.
            std::uint32_t fields[2];
            std::memcpy(fields, block + 2 + 8 * g, sizeof(fields));
            const auto scale = static_cast<std::int16_t>(2 * (fields[1] >> 28) + 1);
            out.scale[2 * g] = scale;
            out.scale[2 * g + 1] = scale;
            for (std::uint32_t l = 0; l < 4; ++l) {
                const std::uint32_t at = 32 * g + 8 * l;
                std::memcpy(out.q + at, &kIq2XxsGrid[(fields[0] >> (8 * l)) & 255u], 8);
                std::memcpy(out.sign + at, &kSignBytes.word[(fields[1] >> (7 * l)) & 127u], 8);
            }
        }
    }
};

struct Q2K {
    static constexpr bool kSigned = false;
    static constexpr bool kMins = true;
    static constexpr std::uint32_t kBytes = 84;

    static void integers(const std::byte* block, IntegerBlock& out) {
        out.d = load_half(block + 80);
        out.dmin = load_half(block + 82);
        for (std::uint32_t j = 0; j < 16; ++j) {
            const auto packed = static_cast<std::uint8_t>(block[j]);
            out.scale[j] = static_cast<std::int16_t>(packed & 15u);
            out.min[j] = static_cast<std::int16_t>(packed >> 4);
        }
        for (std::uint32_t h = 0; h < 2; ++h) {
            std::uint8_t bytes[32];
            std::memcpy(bytes, block + 16 + 32 * h, 32);
            for (std::uint32_t k = 0; k < 4; ++k)
                for (std::uint32_t l = 0; l < 32; ++l)
                    out.q[128 * h + 32 * k + l] =
                        static_cast<std::uint8_t>((bytes[l] >> (2 * k)) & 3u);
        }
    }
};

struct Q4K {
    static constexpr bool kSigned = false;
    static constexpr bool kMins = true;
    static constexpr std::uint32_t kBytes = 144;

    static void integers(const std::byte* block, IntegerBlock& out) {
        out.d = load_half(block);
        out.dmin = load_half(block + 2);
        std::uint8_t s[12];
        std::memcpy(s, block + 4, 12);
        for (std::uint32_t j = 0; j < 8; ++j) {
            const bool low = j < 4;
            const int scale = low ? s[j] & 63 : (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
            const int min = low ? s[j + 4] & 63 : (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
            for (std::uint32_t half = 2 * j; half < 2 * j + 2; ++half) {
                out.scale[half] = static_cast<std::int16_t>(scale);
                out.min[half] = static_cast<std::int16_t>(min);
            }
        }
        for (std::uint32_t g = 0; g < 4; ++g) {
            std::uint8_t bytes[32];
            std::memcpy(bytes, block + 16 + 32 * g, 32);
            for (std::uint32_t l = 0; l < 32; ++l) {
                out.q[64 * g + l] = static_cast<std::uint8_t>(bytes[l] & 15u);
                out.q[64 * g + 32 + l] = static_cast<std::uint8_t>(bytes[l] >> 4);
            }
        }
    }
};

/// Float decoders: elements [first, first + n) of a row, n <= kStep, first a multiple of kStep.
template <class Format>
void decode_blocks(const std::byte* row, std::uint32_t first, std::uint32_t, float* out) {
    IntegerBlock block;
    Format::integers(row + std::uint64_t{first / 256} * Format::kBytes, block);
    for (std::uint32_t j = 0; j < 16; ++j) {
        const float scale = block.d * static_cast<float>(block.scale[j]);
        const float min = Format::kMins ? block.dmin * static_cast<float>(block.min[j]) : 0.0f;
        for (std::uint32_t i = 16 * j; i < 16 * j + 16; ++i) {
            float q = static_cast<float>(block.q[i]);
            if constexpr (Format::kSigned) q *= static_cast<float>(block.sign[i]);
            out[i] = scale * q - min;
        }
    }
}

inline void decode_q8_0(const std::byte* row, std::uint32_t first, std::uint32_t n, float* out) {
    for (std::uint32_t i = 0; i < n; i += 32) {
        const std::byte* block = row + std::uint64_t{(first + i) / 32} * 34;
        const float d = load_half(block);
        std::int8_t q[32];
        std::memcpy(q, block + 2, 32);
        for (std::uint32_t j = 0; j < 32; ++j) out[i + j] = d * static_cast<float>(q[j]);
    }
}

inline void decode_f32(const std::byte* row, std::uint32_t first, std::uint32_t n, float* out) {
    std::memcpy(out, row + std::uint64_t{first} * 4, std::uint64_t{n} * 4);
}

inline void decode_f16(const std::byte* row, std::uint32_t first, std::uint32_t n, float* out) {
    const std::byte* halves = row + std::uint64_t{first} * 2;
    std::uint32_t i = 0;
    for (; i + 16 <= n; i += 16) store_lanes(out + i, load_half_lanes(halves + 2 * i));
    for (; i < n; ++i) out[i] = load_half(halves + 2 * i);
}

inline void decode_bf16(const std::byte* row, std::uint32_t first, std::uint32_t n, float* out) {
    const std::byte* values = row + std::uint64_t{first} * 2;
    for (std::uint32_t i = 0; i < n; ++i) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, values + 2 * i, 2);
        const std::uint32_t wide = std::uint32_t{bits} << 16;
        std::memcpy(out + i, &wide, 4);
    }
}

using DecodeStep = void (*)(const std::byte* row, std::uint32_t first, std::uint32_t n, float* out);
struct DecodeRow {
    WeightType type;
    DecodeStep step;
};
constexpr DecodeRow kDecoders[] = {
    {WeightType::f32, decode_f32},
    {WeightType::f16, decode_f16},
    {WeightType::bf16, decode_bf16},
    {WeightType::q8_0, decode_q8_0},
    {WeightType::q2_k, decode_blocks<Q2K>},
    {WeightType::q4_k, decode_blocks<Q4K>},
    {WeightType::iq2_xxs, decode_blocks<Iq2Xxs>},
};

inline void decode(WeightType type, const std::byte* row, std::uint32_t first, std::uint32_t n,
                   float* out) {
    for (const DecodeRow& decoder : kDecoders) {
        if (decoder.type != type) continue;
        for (std::uint32_t i = 0; i < n; i += kStep)
            decoder.step(row, first + i, n - i < kStep ? n - i : kStep, out + i);
    }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu
