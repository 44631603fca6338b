#include <algorithm>

#include "kernels/cuda/band_stream.cuh"
#include "kernels/cuda/decode.hpp"

namespace plimsoll::kernels::cuda {
namespace {

// Bound by the weights' bytes: 27 MB a launch for q_a, kv and the compressors, 36 MB for q_b, 563
// MB for the head. Each block works on one product (and one group of it) and quantises its input
// for itself, while its first 64 KB of weights are on their way.
/// Bounds the partial sums of a block. A share of more weights than these (4 MB of Q8_0) is split
/// over more blocks than run at once.
constexpr std::uint32_t kPartialsMax = 4096;

/// What a block asks for in L2 before it waits, beyond its first tasks: so DRAM has work while the
/// launch before ends and inputs are quantised. 17 MB on an H200, of an L2 of 60.
constexpr std::uint32_t kPrefetchBytes = 64 * 1024;

/// One product as its blocks see it.
struct Product {
    WeightPlanes planes;
    const float* input;
    const float* norm_weight;
    float* output;
    WeightType type;
    std::uint32_t n_in;
    std::uint32_t rows_per_group;
    std::uint32_t blocks_per_group;
    std::uint32_t first_block;
    std::uint32_t rows_min;
};
struct Products {
    Product list[kDecodeProductsMax];
    std::uint32_t n;
    float rms_epsilon;
    const StepState* state;
};

struct OneMatrix {
    WeightPlanes planes;
    __device__ const WeightPlanes& operator()(std::uint32_t) const { return planes; }
};

template <class Format>
__device__ void multiply(const Product& product, const Products& all, float* squares) {
    const std::uint32_t block = blockIdx.x - product.first_block;
    const std::uint32_t group = block / product.blocks_per_group;
    const RowRange range = share_of_rows(product.rows_per_group, product.blocks_per_group,
                                         block - group * product.blocks_per_group);
    const std::uint32_t group_row = group * product.rows_per_group;
    const BandShare share{group_row + range.first, group_row + range.last,
                          product.n_in / Format::kPiece, 1};
    const StreamMemory<Format> memory(product.n_in, range.last - range.first, 1);
    unsigned char* shared = dynamic_shared() + memory.row_bytes;
    auto* partials = reinterpret_cast<float*>(dynamic_shared() + memory.partials_bytes);
    const std::uint32_t warp = threadIdx.x / kWarp;
    BandStream<Format, OneMatrix> stream(share, {product.planes}, memory.ring_bytes);

    if (product.rows_min == 0) {
        stream.start();
        const std::uint32_t rows = kPrefetchBytes / (share.n_pieces * 16) / 4 * 4;
        const std::uint32_t from = stream.first_row_not_started();
        prefetch_rows<Format>(product.planes, product.n_in, from,
                              share.row_last - from < rows ? share.row_last : from + rows);
    }
    if constexpr (Format::kIq2) fill_iq2_tables();
    if (product.norm_weight != nullptr)
        for (std::uint32_t e = 16 * threadIdx.x; e < product.n_in; e += 16 * kStreamThreads)
            prefetch_l2(product.norm_weight + e);
    wait_for_previous_kernel();
    if (product.rows_min != 0) {
        if ((all.state->position + 1) / 4 <= product.rows_min) return;
        stream.start();
    }
    const float* input = product.input + std::uint64_t{group} * product.n_in;
    RowInput row{input, product.norm_weight, 1.0f};
    if (product.norm_weight != nullptr)
        row.factor = row_inverse_rms(input, product.n_in, all.rms_epsilon, squares);
    put_row<Format>(shared, row, product.n_in, warp, kStreamWarps);
    __syncthreads();
    const SharedRow x = shared_row<Format>(shared, product.n_in);
    stream.run([&](std::uint32_t) { return x; }, partials);
    __syncthreads();
    for (std::uint32_t r = share.row_first + threadIdx.x; r < share.row_last; r += kStreamThreads)
        product.output[r] = stream.row_sum(partials, 0, r);
}

__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_products_kernel(const __grid_constant__ Products all) {
    __shared__ float squares[kWarp];
    allow_next_kernel();
    std::uint32_t index = 0;
    while (index + 1 < all.n && blockIdx.x >= all.list[index + 1].first_block) ++index;
    const Product& product = all.list[index];
    on_format(product.type,
              [&](auto format) { multiply<decltype(format)>(product, all, squares); });
}

struct FormatSizes {
    std::uint32_t partials;      // of a band
    std::uint32_t shared_bytes;  // of a block with `rows` rows
};
FormatSizes sizes_of(WeightType type, std::uint32_t n_in, std::uint32_t rows) {
    FormatSizes sizes{};
    with_format(type, [&](auto format) {
        using Format = decltype(format);
        sizes = {partials_of<Format>(1, n_in / Format::kPiece, 1),
                 StreamMemory<Format>(n_in, rows, 1).size_bytes};
    });
    return sizes;
}

std::uint64_t weight_bytes(const DecodeProduct& product) {
    return weight_row_bytes(product.weight.type, product.weight.n_in) * product.weight.n_out;
}

void check_product(const DecodeProduct& product) {
    const WeightMatrix& weight = product.weight;
    PLIMSOLL_KERNEL_CHECK(product.n_groups > 0, "a product has at least one group");
    PLIMSOLL_KERNEL_CHECK(weight.n_out % product.n_groups == 0, "groups have equal rows");
    PLIMSOLL_KERNEL_CHECK(weight.n_in % info_of(weight.type).block_elements == 0,
                          "weight rows are whole blocks");
    PLIMSOLL_KERNEL_CHECK(info_of(weight.type).block_elements > 1 ||
                              weight_row_bytes(weight.type, weight.n_in) % 16 == 0,
                          "rows of floating-point weights are multiples of 16 bytes");
    PLIMSOLL_KERNEL_CHECK(product.norm_weight == nullptr || product.n_groups == 1,
                          "only a single group is normed");
}

}  // namespace

void decode_products(std::span<const DecodeProduct> products, float rms_epsilon,
                     const Launch& launch) {
    PLIMSOLL_KERNEL_CHECK(!products.empty(), "a launch has products");
    PLIMSOLL_KERNEL_CHECK(products.size() <= kDecodeProductsMax, "too many products in a launch");
    std::uint64_t total_bytes = 0;
    for (const DecodeProduct& product : products) total_bytes += weight_bytes(product);
    Products all{};
    all.n = static_cast<std::uint32_t>(products.size());
    all.rms_epsilon = rms_epsilon;
    all.state = launch.state;
    std::uint32_t n_blocks = 0;
    std::uint32_t shared_bytes = 0;
    for (std::uint32_t i = 0; i < all.n; ++i) {
        const DecodeProduct& product = products[i];
        const WeightMatrix& weight = product.weight;
        check_product(product);
        const std::uint32_t rows = weight.n_out / product.n_groups;
        const std::uint32_t bands = (rows + 3) / 4;
        // Blocks by bytes, rounded down so that all run at once; but no empty ones, and none with
        // more partial sums than fit.
        const std::uint64_t by_bytes =
            launch.n_multiprocessors * weight_bytes(product) / total_bytes / product.n_groups;
        const std::uint32_t bands_max =
            std::max(1u, kPartialsMax / sizes_of(weight.type, weight.n_in, 0).partials);
        const auto per_group = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(by_bytes, (bands + bands_max - 1) / bands_max, bands));
        all.list[i] = {planes_of(weight),
                       product.input,
                       product.norm_weight,
                       product.output,
                       weight.type,
                       weight.n_in,
                       rows,
                       per_group,
                       n_blocks,
                       product.rows_min};
        n_blocks += per_group * product.n_groups;
        const std::uint32_t rows_max = (bands + per_group - 1) / per_group * 4;
        shared_bytes =
            std::max(shared_bytes, sizes_of(weight.type, weight.n_in, rows_max).shared_bytes);
    }
    launch_kernel(
        decode_products_kernel,
        {.grid = {n_blocks, 1, 1}, .block = {kStreamThreads, 1, 1}, .shared_bytes = shared_bytes},
        launch, all);
}

}  // namespace plimsoll::kernels::cuda
