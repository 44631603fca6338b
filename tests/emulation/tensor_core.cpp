#include "tests/emulation/tensor_core.hpp"

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/check.hpp"
#include "kernels/half.hpp"
#include "tests/emulation/scheduler.hpp"

namespace plimsoll::emulation {
namespace {

constexpr std::uint32_t kAllLanes = 0xFFFFFFFFu;

/// Conversions are most of a product's time without a table.
const float* f16_table() {
    static const std::vector<float> table = [] {
        std::vector<float> values(65536);
        for (std::uint32_t bits = 0; bits < 65536; ++bits)
            values[bits] = kernels::f32_from_f16(static_cast<std::uint16_t>(bits));
        return values;
    }();
    return table.data();
}

void check_whole_warp(void* const (&lanes)[kWarp]) {
    for (const void* lane : lanes)
        PLIMSOLL_KERNEL_CHECK(lane != nullptr, "a matrix operation needs all 32 lanes");
}

struct Mma {
    float* d;                // [4]
    const std::uint32_t* a;  // [4]
    const std::uint32_t* b;  // [2]
};

void multiply(void* const (&lanes)[kWarp]) {
    check_whole_warp(lanes);
    const float* table = f16_table();
    float a[16][16];
    float b[8][16];  // by column
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        const Mma& own = *static_cast<const Mma*>(lanes[lane]);
        const std::uint32_t g = lane / 4, c = lane % 4;
        for (std::uint32_t i = 0; i < 4; ++i) {
            const std::uint32_t row = g + 8 * (i % 2), k = 2 * c + 8 * (i / 2);
            a[row][k] = table[own.a[i] & 0xFFFFu];
            a[row][k + 1] = table[own.a[i] >> 16];
        }
        for (std::uint32_t i = 0; i < 2; ++i) {
            b[g][2 * c + 8 * i] = table[own.b[i] & 0xFFFFu];
            b[g][2 * c + 8 * i + 1] = table[own.b[i] >> 16];
        }
    }
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        const Mma& own = *static_cast<const Mma*>(lanes[lane]);
        const std::uint32_t g = lane / 4, c = lane % 4;
        for (std::uint32_t i = 0; i < 4; ++i) {
            const float* row = a[g + 8 * (i / 2)];
            const float* column = b[2 * c + i % 2];
            float sum = 0;
            for (std::uint32_t k = 0; k < 16; ++k) sum += row[k] * column[k];
            own.d[i] += sum;
        }
    }
}

/// What a tensor core reads of a float32 operand.
float tf32_of(std::uint32_t bits) { return std::bit_cast<float>(bits & 0xFFFFE000u); }

void multiply_tf32(void* const (&lanes)[kWarp]) {
    check_whole_warp(lanes);
    float a[16][8];
    float b[8][8];  // by column
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        const Mma& own = *static_cast<const Mma*>(lanes[lane]);
        const std::uint32_t g = lane / 4, c = lane % 4;
        for (std::uint32_t i = 0; i < 4; ++i)
            a[g + 8 * (i % 2)][c + 4 * (i / 2)] = tf32_of(own.a[i]);
        for (std::uint32_t i = 0; i < 2; ++i) b[g][c + 4 * i] = tf32_of(own.b[i]);
    }
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        const Mma& own = *static_cast<const Mma*>(lanes[lane]);
        const std::uint32_t g = lane / 4, c = lane % 4;
        for (std::uint32_t i = 0; i < 4; ++i) {
            float sum = 0;
            for (std::uint32_t k = 0; k < 8; ++k)
                sum += a[g + 8 * (i / 2)][k] * b[2 * c + i % 2][k];
            own.d[i] += sum;
        }
    }
}

struct Tiles {
    std::uint32_t* r;  // [4]
    const unsigned char* row;
};

std::uint16_t half_of(void* const (&lanes)[kWarp], std::uint32_t tile, std::uint32_t row,
                      std::uint32_t column) {
    const Tiles& owner = *static_cast<const Tiles*>(lanes[8 * tile + row]);
    std::uint16_t half = 0;
    std::memcpy(&half, owner.row + 2 * column, 2);
    return half;
}

template <bool kTransposed>
void load(void* const (&lanes)[kWarp]) {
    check_whole_warp(lanes);
    std::uint32_t loaded[kWarp][4];
    for (std::uint32_t lane = 0; lane < kWarp; ++lane) {
        PLIMSOLL_KERNEL_CHECK(
            reinterpret_cast<std::uintptr_t>(static_cast<const Tiles*>(lanes[lane])->row) % 16 == 0,
            "a misaligned row of load_matrix");
        for (std::uint32_t tile = 0; tile < 4; ++tile) {
            const std::uint32_t row = lane / 4, column = 2 * (lane % 4);
            const std::uint32_t low =
                kTransposed ? half_of(lanes, tile, column, row) : half_of(lanes, tile, row, column);
            const std::uint32_t high = kTransposed ? half_of(lanes, tile, column + 1, row)
                                                   : half_of(lanes, tile, row, column + 1);
            loaded[lane][tile] = low | high << 16;
        }
    }
    for (std::uint32_t lane = 0; lane < kWarp; ++lane)
        std::memcpy(static_cast<const Tiles*>(lanes[lane])->r, loaded[lane], sizeof(loaded[lane]));
}

struct Sum {
    float value;
};

void add_up(void* const (&lanes)[kWarp]) {
    check_whole_warp(lanes);
    for (std::uint32_t offset = 16; offset > 0; offset /= 2) {
        float before[kWarp];
        for (std::uint32_t lane = 0; lane < kWarp; ++lane)
            before[lane] = static_cast<const Sum*>(lanes[lane])->value;
        for (std::uint32_t lane = 0; lane < kWarp; ++lane)
            static_cast<Sum*>(lanes[lane])->value = before[lane] + before[lane ^ offset];
    }
}

}  // namespace

void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    Mma own{d, a, b};
    meet_warp(kAllLanes, multiply, &own);
}

void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    Mma own{d, a, b};
    meet_warp(kAllLanes, multiply_tf32, &own);
}

void load_matrix(std::uint32_t (&r)[4], const void* row_shared) {
    Tiles own{r, static_cast<const unsigned char*>(row_shared)};
    meet_warp(kAllLanes, load<false>, &own);
}

void load_matrix_transposed(std::uint32_t (&r)[4], const void* row_shared) {
    Tiles own{r, static_cast<const unsigned char*>(row_shared)};
    meet_warp(kAllLanes, load<true>, &own);
}

float warp_sum(float x) {
    Sum own{x};
    meet_warp(kAllLanes, add_up, &own);
    return own.value;
}

}  // namespace plimsoll::emulation
