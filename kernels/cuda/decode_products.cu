#include <algorithm>

#include "kernels/cuda/decode_rows.cuh"
#include "kernels/cuda/hc_mix_row.cuh"
#include "kernels/cuda/hc_tail.cuh"

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
    hc::Mix mix;
    hc::Merge merge;
    std::uint32_t n_blocks;  // with products, and before them with rows
};

struct OneMatrix {
    WeightPlanes planes;
    __device__ const WeightPlanes& operator()(std::uint32_t) const { return planes; }
};

/// A block's share of a product's rows.
template <class Format>
__device__ __forceinline__ BandShare share_of(const Product& product, std::uint32_t group) {
    const std::uint32_t block = blockIdx.x - product.first_block;
    const RowRange range = share_of_rows(product.rows_per_group, product.blocks_per_group,
                                         block - group * product.blocks_per_group);
    const std::uint32_t first = group * product.rows_per_group;
    return {first + range.first, first + range.last, product.n_in / Format::kPiece, 1};
}

/// Before the wait: the first weights.
template <class Format>
__device__ __forceinline__ void start(BandStream<Format, OneMatrix>& stream, const Product& product,
                                      const BandShare& share) {
    stream.start();
    const std::uint32_t rows = kPrefetchBytes / (share.n_pieces * 16) / 4 * 4;
    const std::uint32_t from = stream.first_row_not_started();
    prefetch_rows<Format>(product.planes, product.n_in, from,
                          share.row_last - from < rows ? share.row_last : from + rows);
}

/// The products with the row in shared memory, once the block has it: finish(row, y) for each of
/// the share's rows. The block meets behind ready().
template <class Format, class Ready, class Finish>
__device__ __forceinline__ void run(BandStream<Format, OneMatrix>& stream, const Product& product,
                                    const BandShare& share, const Ready& ready,
                                    const Finish& finish) {
    const StreamMemory<Format> memory(product.n_in, share.row_last - share.row_first, 1);
    auto* partials = reinterpret_cast<float*>(dynamic_shared() + memory.partials_bytes);
    __syncthreads();
    const SharedRow x = shared_row<Format>(dynamic_shared() + memory.row_bytes, product.n_in);
    stream.run([&](std::uint32_t) { return x; }, partials);
    ready();
    __syncthreads();
    for (std::uint32_t r = share.row_first + threadIdx.x; r < share.row_last; r += kStreamThreads)
        finish(r, stream.row_sum(partials, 0, r));
}

/// Rows whose input lies in memory; merged or stored.
template <class Format, bool kMerges>
__device__ void multiply(const Product& product, const Products& all, float* squares) {
    const std::uint32_t group = (blockIdx.x - product.first_block) / product.blocks_per_group;
    const BandShare share = share_of<Format>(product, group);
    const StreamMemory<Format> memory(product.n_in, share.row_last - share.row_first, 1);
    BandStream<Format, OneMatrix> stream(share, {product.planes}, memory.ring_bytes);
    const hc::Tail tail(all.merge, {share.row_first, share.row_last}, memory.size_bytes);

    if constexpr (kMerges) tail.ask_for_fn();
    if (product.rows_min == 0) start(stream, product, share);
    if constexpr (Format::kIq2) fill_iq2_tables();
    if (product.norm_weight != nullptr)
        for (std::uint32_t e = 16 * threadIdx.x; e < product.n_in; e += 16 * kStreamThreads)
            prefetch_l2(product.norm_weight + e);
    wait_for_previous_kernel();
    if (product.rows_min != 0) {
        if ((all.state->position + 1) / 4 <= product.rows_min) return;
        stream.start();
    }
    if constexpr (kMerges) tail.ask_for_streams();
    const float* input = product.input + std::uint64_t{group} * product.n_in;
    RowInput row{input, product.norm_weight, 1.0f};
    if (product.norm_weight != nullptr)
        row.factor = row_inverse_rms(input, product.n_in, all.rms_epsilon, squares);
    put_row<Format>(dynamic_shared() + memory.row_bytes, row, product.n_in, threadIdx.x / kWarp,
                    kStreamWarps);
    if constexpr (kMerges) {
        run(
            stream, product, share, [&] { tail.await_copies(); },
            [&](std::uint32_t r, float y) { tail.merge(r, y); });
        tail.leave_sums();
    } else {
        run(
            stream, product, share, [] {},
            [&](std::uint32_t r, float y) { product.output[r] = y; });
    }
}

/// Rows whose input is a mix of the streams.
template <class Format, std::uint32_t kStreams>
__device__ void multiply_mix(const Product& product, const Products& all, hc::MixShared& shared) {
    {
        const BandShare share = share_of<Format>(product, 0);
        const StreamMemory<Format> memory(product.n_in, share.row_last - share.row_first, 1);
        BandStream<Format, OneMatrix> stream(share, {product.planes}, memory.ring_bytes);
        start(stream, product, share);
        if (threadIdx.x == 0) shared.share = share;
    }
    if constexpr (Format::kIq2) fill_iq2_tables();
    hc::begin_mix(all.mix.params, shared);
    wait_for_previous_kernel();
    hc::put_mixed_row<Format, kStreams>(dynamic_shared() + kTablesBytes<Format>, all.mix,
                                        all.n_blocks, shared);
    const BandShare share = shared.share;
    const StreamMemory<Format> memory(product.n_in, share.row_last - share.row_first, 1);
    BandStream<Format, OneMatrix> stream(share, {product.planes}, memory.ring_bytes);
    stream.resume();
    run(
        stream, product, share, [] {}, [&](std::uint32_t r, float y) { product.output[r] = y; });
}

__device__ __forceinline__ const Product& product_of_block(const Products& all) {
    std::uint32_t index = 0;
    while (index + 1 < all.n && blockIdx.x >= all.list[index + 1].first_block) ++index;
    return all.list[index];
}

template <bool kMerges>
__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_products_kernel(const __grid_constant__ Products all) {
    __shared__ float squares[kStreamWarps];
    allow_next_kernel();
    const Product& product = product_of_block(all);
    on_format(product.type,
              [&](auto format) { multiply<decltype(format), kMerges>(product, all, squares); });
}

/// One block more than have products makes the coefficients of the next merge.
template <std::uint32_t kStreams>
__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_mixed_products_kernel(const __grid_constant__ Products all) {
    __shared__ hc::MixShared shared;
    allow_next_kernel();
    if (blockIdx.x == all.n_blocks) {
        hc::leave_coefficients<kStreams>(all.mix, shared);
        return;
    }
    const Product& product = product_of_block(all);
    on_format(product.type,
              [&](auto format) { multiply_mix<decltype(format), kStreams>(product, all, shared); });
}

/// Rows first: they take longer to start than products.
__global__ void __launch_bounds__(kStreamThreads, kResidentStreams)
    decode_products_and_rows_kernel(const __grid_constant__ Products all,
                                    const __grid_constant__ RowsArgs rows) {
    __shared__ float squares[kStreamWarps];
    static_assert(kStreamThreads == kCompressorThreads);
    allow_next_kernel();
    if (blockIdx.x < rows.n_blocks) {
        make_row(rows, blockIdx.x, *reinterpret_cast<RowScratch*>(dynamic_shared()), all.state);
        return;
    }
    const Product& product = product_of_block(all);
    on_format(product.type,
              [&](auto format) { multiply<decltype(format), false>(product, all, squares); });
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

/// Blocks of a group of one of several products: by bytes, rounded down so that all run at once;
/// but no empty ones, and none with more partial sums than fit.
std::uint32_t blocks_of_group(const DecodeProduct& product, std::uint64_t total_bytes,
                              std::uint32_t n_multiprocessors) {
    const WeightMatrix& weight = product.weight;
    const std::uint32_t bands = (weight.n_out / product.n_groups + 3) / 4;
    const std::uint64_t by_bytes =
        n_multiprocessors * weight_bytes(product) / total_bytes / product.n_groups;
    const std::uint32_t bands_max =
        std::max(1u, kPartialsMax / sizes_of(weight.type, weight.n_in, 0).partials);
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(by_bytes, (bands + bands_max - 1) / bands_max, bands));
}

/// Spreads products over blocks, those of a merge where `all` has one already; returns the bytes of
/// shared memory that the largest block needs.
std::uint32_t spread(std::span<const DecodeProduct> products, const Launch& launch, Products& all) {
    PLIMSOLL_KERNEL_CHECK(products.size() <= kDecodeProductsMax, "too many products in a launch");
    std::uint64_t total_bytes = 0;
    for (const DecodeProduct& product : products) total_bytes += weight_bytes(product);
    all.n = static_cast<std::uint32_t>(products.size());
    all.state = launch.state;
    std::uint32_t shared_bytes = 0;
    for (std::uint32_t i = 0; i < all.n; ++i) {
        const DecodeProduct& product = products[i];
        const WeightMatrix& weight = product.weight;
        check_product(product);
        const std::uint32_t rows = weight.n_out / product.n_groups;
        const std::uint32_t per_group =
            all.merge.streams != nullptr
                ? hc::block_count(all.merge.hidden, launch.n_multiprocessors)
                : blocks_of_group(product, total_bytes, launch.n_multiprocessors);
        all.list[i] = {planes_of(weight),
                       product.input,
                       product.norm_weight,
                       product.output,
                       weight.type,
                       weight.n_in,
                       rows,
                       per_group,
                       all.n_blocks,
                       product.rows_min};
        all.n_blocks += per_group * product.n_groups;
        const std::uint32_t rows_max = ((rows + 3) / 4 + per_group - 1) / per_group * 4;
        std::uint32_t block_bytes = sizes_of(weight.type, weight.n_in, rows_max).shared_bytes;
        if (all.merge.streams != nullptr)
            block_bytes = hc::TailMemory(all.merge, rows_max, block_bytes).size_bytes;
        shared_bytes = std::max(shared_bytes, block_bytes);
    }
    return shared_bytes;
}

Shape shape_of(std::uint32_t n_blocks, std::uint32_t shared_bytes) {
    return {
        .grid = {n_blocks, 1, 1}, .block = {kStreamThreads, 1, 1}, .shared_bytes = shared_bytes};
}

}  // namespace

void decode_products(std::span<const DecodeProduct> products, float rms_epsilon,
                     const Launch& launch) {
    Products all{};
    all.rms_epsilon = rms_epsilon;
    const std::uint32_t shared_bytes = spread(products, launch, all);
    launch_kernel(decode_products_kernel<false>, shape_of(all.n_blocks, shared_bytes), launch, all);
}

void decode_products_and_rows(std::span<const DecodeProduct> products, float rms_epsilon,
                              const DecodeRowsParams& rows, const Launch& launch) {
    const RowsArgs args = rows_args(rows);
    Products all{};
    all.rms_epsilon = rms_epsilon;
    all.n_blocks = args.n_blocks;
    const std::uint32_t shared_bytes =
        std::max<std::uint32_t>(spread(products, launch, all), sizeof(RowScratch));
    launch_kernel(decode_products_and_rows_kernel, shape_of(all.n_blocks, shared_bytes), launch,
                  all, args);
}

void decode_mixed_products(std::span<const DecodeProduct> products, const DecodeMix& mix,
                           const Launch& launch) {
    Products all{};
    all.mix = hc::mix_of(mix, launch);
    for (const DecodeProduct& product : products) {
        PLIMSOLL_KERNEL_CHECK(product.n_groups == 1, "products of a mix have one group");
        PLIMSOLL_KERNEL_CHECK(product.weight.n_in == mix.hidden, "a mix has another width");
    }
    const std::uint32_t shared_bytes = spread(products, launch, all);
    launch_kernel(mix.n_streams == 4 ? decode_mixed_products_kernel<4>
                                     : decode_mixed_products_kernel<kStreamsMax>,
                  shape_of(all.n_blocks + 1, shared_bytes), launch, all);
}

void decode_merged_product(const DecodeProduct& product, const DecodeMerge& merge,
                           const Launch& launch) {
    Products all{};
    all.merge = hc::merge_of(merge);
    PLIMSOLL_KERNEL_CHECK(all.merge.streams != nullptr && all.merge.coefficients != nullptr,
                          "there are streams, and coefficients to merge with");
    PLIMSOLL_KERNEL_CHECK(product.n_groups == 1, "a merged product has one group");
    PLIMSOLL_KERNEL_CHECK(product.weight.n_out == all.merge.hidden,
                          "the streams have another width");
    const std::uint32_t shared_bytes = spread({&product, 1}, launch, all);
    launch_kernel(decode_products_kernel<true>, shape_of(all.n_blocks, shared_bytes), launch, all);
}

}  // namespace plimsoll::kernels::cuda
