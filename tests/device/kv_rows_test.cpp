#include <sstream>

#include "kernels/cuda/ops.hpp"
#include "kernels/half.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct RowShape {
    std::uint32_t head_dim, rope_dim;
};
constexpr RowShape kRowShapes[] = {{64, 16}, {80, 16}, {512, 64}, {36, 4}};

std::string describe(const RowShape& shape, KvFormat format, CacheRounding rounding) {
    std::ostringstream out;
    out << "head_dim " << shape.head_dim << ", rope_dim " << shape.rope_dim << ", packed "
        << (format == KvFormat::packed) << ", rounding " << (rounding == CacheRounding::on);
    return out.str();
}

/// Rows in which blocks differ in scale from denormal to large, and blocks whose largest value lies
/// on or beside a power of two times 448.
std::vector<float> biased_rows(Random& random, std::uint32_t n_rows, std::uint32_t head_dim) {
    std::vector<float> rows = extreme_values(random, std::size_t{n_rows} * head_dim);
    for (std::uint32_t row = 0; row < n_rows; ++row)
        for (std::uint32_t first = 0; first < head_dim; first += 64) {
            float* block = rows.data() + std::size_t{row} * head_dim + first;
            const std::uint32_t n = std::min(64u, head_dim - first);
            const float scale = std::ldexp(1.0f, static_cast<int>(random.below(24)) - 20);
            for (std::uint32_t i = 0; i < n; ++i) block[i] *= scale;
            if (random.below(3) != 0) continue;
            const float edge = 448.0f * std::ldexp(1.0f, static_cast<int>(random.below(12)) - 12);
            const float beside[3] = {std::nextafter(edge, 0.0f), edge, std::nextafter(edge, 1e30f)};
            for (std::uint32_t i = 0; i < n; ++i)
                if (std::fabs(block[i]) > edge) block[i] = edge;
            block[random.below(n)] = beside[random.below(3)];
        }
    return rows;
}

TEST(GpuKvRows, RoundAsTheCpuDoesBitForBit) {
    PLIMSOLL_NEEDS_GPU();
    Random random(501);
    DeviceStep step;
    for (const RowShape& shape : kRowShapes)
        for (const KvFormat format : {KvFormat::f32, KvFormat::packed})
            for (const CacheRounding rounding : {CacheRounding::off, CacheRounding::on}) {
                if (format == KvFormat::packed && rounding == CacheRounding::off) continue;
                constexpr std::uint32_t kRows = 9;
                std::vector<float> expected = biased_rows(random, kRows, shape.head_dim);
                const DeviceArray<float> rows(expected);
                cuda::round_kv_rows(
                    {rows.data(), kRows, shape.head_dim, shape.rope_dim, format, rounding},
                    step.launch());
                step.wait();
                cpu::round_kv_rows(
                    {expected.data(), kRows, shape.head_dim, shape.rope_dim, format, rounding},
                    Workers(1));
                expect_equal(rows.download(), expected, describe(shape, format, rounding));
                EXPECT_TRUE(rows.guard_intact());
            }
}

TEST(GpuKvRows, StoreTheCpusBytesInARing) {
    PLIMSOLL_NEEDS_GPU();
    Random random(502);
    DeviceStep step;
    for (const RowShape& shape : kRowShapes)
        for (const KvFormat format : {KvFormat::f32, KvFormat::packed})
            for (const std::uint32_t n_rows : {0u, 1u, 7u, 11u, 30u}) {
                constexpr std::uint32_t kCapacity = 11;
                constexpr std::uint64_t kPosition = (std::uint64_t{1} << 33) + 5;
                const std::uint64_t size_bytes =
                    kv_rows_bytes(format, kCapacity, shape.head_dim, shape.rope_dim);
                const std::vector<float> values = biased_rows(random, n_rows, shape.head_dim);
                const DeviceArray<float> rows(values);
                const DeviceArray<std::byte> region(size_bytes);
                cuda::store_kv_rows(
                    {rows.data(),
                     {region.data(), format, kCapacity, shape.head_dim, shape.rope_dim},
                     0,
                     n_rows},
                    step.launch(kPosition));
                step.wait();
                Region host(size_bytes);
                std::memset(host.data(), 0xFF, size_bytes);
                cpu::store_kv_rows(
                    {values.data(),
                     {host.data(), format, kCapacity, shape.head_dim, shape.rope_dim},
                     kPosition,
                     n_rows},
                    Workers(1));
                const auto* bytes = static_cast<const std::byte*>(host.data());
                expect_equal(region.download(), std::vector<std::byte>(bytes, bytes + size_bytes),
                             describe(shape, format, CacheRounding::on));
                EXPECT_TRUE(region.guard_intact());
            }
}

TEST(GpuKvRows, RopeTurnsAsTheCpuDoesAtAnyPosition) {
    PLIMSOLL_NEEDS_GPU();
    Random random(503);
    DeviceStep step;
    for (const RowShape& shape : kRowShapes)
        for (const std::uint64_t position : {std::uint64_t{0}, std::uint64_t{1000003}})
            for (const bool inverse : {false, true}) {
                constexpr std::uint32_t kTokens = 5, kHeads = 3;
                std::vector<double> frequencies(shape.rope_dim / 2);
                rope_frequencies({.base = 10000.0, .rope_dim = shape.rope_dim}, frequencies);
                std::vector<float> expected =
                    uniform_values(random, std::size_t{kTokens} * kHeads * shape.head_dim);
                const DeviceArray<float> vectors(expected);
                const auto params = [&](float* data) {
                    return RopeOpParams{data,     {frequencies.data(), shape.rope_dim},
                                        position, kTokens,
                                        kHeads,   shape.head_dim,
                                        inverse};
                };
                cuda::rope(params(vectors.data()), step.launch(position));
                step.wait();
                cpu::rope(params(expected.data()), Workers(1));
                expect_close(vectors.download(), expected, {.error_max = 6e-7},
                             describe(shape, KvFormat::f32, CacheRounding::off));
                EXPECT_TRUE(vectors.guard_intact());
            }
}

}  // namespace
}  // namespace plimsoll::kernels
