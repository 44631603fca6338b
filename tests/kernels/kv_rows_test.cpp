#include "kernels/cache_rounding.hpp"
#include "kernels/half.hpp"
#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

TEST(KvRows, PackedSizesAreThoseOfTheFormat) {
    // 448 codes, 8 exponents and 64 halves a row; 64 and 4 bytes for an indexer row.
    EXPECT_EQ(kv_rows_bytes(KvFormat::packed, 256, 512, 64), 256u * (448 + 8 + 128));
    EXPECT_EQ(indexer_rows_bytes(KvFormat::packed, 256, 128), 256u * 68);
    EXPECT_EQ(kv_rows_bytes(KvFormat::packed, 1, 80, 16), 3u * 256);
    EXPECT_EQ(kv_rows_bytes(KvFormat::f32, 3, 80, 16), 1024u);
    EXPECT_EQ(indexer_rows_bytes(KvFormat::f32, 1, 32), 256u);
    EXPECT_EQ(kv_rows_bytes(KvFormat::packed, 0, 512, 64), 0u);
    const PlaneOffsets offsets = kv_plane_offsets(130, 512, 64);
    EXPECT_EQ(offsets.exponents_bytes % kPlaneAlignmentBytes, 0u);
    EXPECT_EQ(offsets.tail_bytes % kPlaneAlignmentBytes, 0u);
    EXPECT_GE(offsets.exponents_bytes, 130u * 448);
}

TEST(KvRows, RoundedRowsComeBackBitForBitInBothFormats) {
    Random random(61);
    for (const std::uint32_t head_dim : {80u, 128u, 512u, 140u}) {
        const std::uint32_t rope_dim = head_dim == 80 ? 16 : 64;
        for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
            std::vector<float> rows = extreme_values(random, 9 * head_dim), back(rows.size());
            cpu::round_kv_rows({rows.data(), 9, head_dim, rope_dim, format, CacheRounding::on},
                               Workers(2));
            Region region(kv_rows_bytes(format, 10, head_dim, rope_dim));
            const KvRows kv{region.data(), format, 10, head_dim, rope_dim};
            cpu::store_kv_rows({rows.data(), kv, 17, 9}, Workers(2));
            cpu::load_kv_rows({kv, back.data(), 17, 9}, Workers(2));
            expect_same(back, rows);
        }
    }
}

TEST(KvRows, RoundingFollowsTheDefinition) {
    Random random(62);
    std::vector<float> row = extreme_values(random, 80);
    const std::vector<float> before = row;
    cpu::round_kv_rows({row.data(), 1, 80, 16, KvFormat::packed, CacheRounding::on}, Workers(1));
    double amax = 1e-4;
    for (int i = 0; i < 64; ++i)
        amax = std::max(amax, std::fabs(static_cast<double>(before[static_cast<std::size_t>(i)])));
    const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
    for (std::size_t i = 0; i < 64; ++i) {
        // The nearest of all representable values, found by looking at every one of them.
        double best = 0;
        for (int code = 0; code < 254; ++code) {
            if ((code & 127) == 127) continue;
            const double value =
                static_cast<double>(f32_from_e4m3(static_cast<std::uint8_t>(code))) * scale;
            if (std::fabs(value - static_cast<double>(before[i])) <
                std::fabs(best - static_cast<double>(before[i])))
                best = value;
        }
        EXPECT_NEAR(static_cast<double>(row[i]) - static_cast<double>(before[i]),
                    best - static_cast<double>(before[i]), 1e-12);
    }
    for (std::size_t i = 64; i < 80; ++i) EXPECT_EQ(row[i], f32_from_f16(f16_from_f32(before[i])));
    std::vector<float> unrounded = before;
    cpu::round_kv_rows({unrounded.data(), 1, 80, 16, KvFormat::f32, CacheRounding::off},
                       Workers(1));
    expect_same(unrounded, before);
}

TEST(KvRows, RingKeepsTheLastRowsOfALongChunk) {
    Random random(63);
    const std::vector<float> rows = uniform_values(random, 11 * 80);
    Region region(kv_rows_bytes(KvFormat::f32, 4, 80, 16));
    const KvRows ring{region.data(), KvFormat::f32, 4, 80, 16};
    cpu::store_kv_rows({rows.data(), ring, 100, 11}, Workers(3));
    std::vector<float> back(4 * 80);
    cpu::load_kv_rows({ring, back.data(), 107, 4}, Workers(1));
    expect_same(back, {rows.begin() + 7 * 80, rows.end()});
}

TEST(IndexerRows, RoundedRowsComeBackBitForBitInBothFormats) {
    Random random(64);
    for (const std::uint32_t dim : {32u, 64u, 128u})
        for (const KvFormat format : {KvFormat::f32, KvFormat::packed}) {
            std::vector<float> rows = extreme_values(random, 5 * dim), back(rows.size());
            cpu::round_indexer_rows({rows.data(), 5, dim, CacheRounding::on}, Workers(2));
            Region region(indexer_rows_bytes(format, 8, dim));
            const IndexerRows indexer{region.data(), format, 8, dim};
            cpu::store_indexer_rows({rows.data(), indexer, 2, 5}, Workers(2));
            cpu::load_indexer_rows({indexer, back.data(), 2, 5}, Workers(2));
            expect_same(back, rows);
        }
}

}  // namespace
}  // namespace plimsoll::kernels
