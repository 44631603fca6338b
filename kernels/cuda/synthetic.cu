#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/cuda/intrinsics.cuh"
#include "kernels/cuda/synthetic.hpp"

// A word of eight bytes costs two 64-bit products and some dozens of instructions, and is written
// once: 81 GiB take well below 100 ms of an H200's integer units.

namespace plimsoll::kernels::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
/// Blocks that fill the device; larger work is looped over.
constexpr std::uint32_t kBlocksPerMultiprocessor = 8;

Shape shape_of(std::uint64_t n_items, const Launch& launch) {
    const std::uint64_t blocks = (n_items + kThreads - 1) / kThreads;
    const std::uint64_t most = std::uint64_t{launch.n_multiprocessors} * kBlocksPerMultiprocessor;
    return {.grid = {static_cast<std::uint32_t>(std::min(blocks, most)), 1, 1},
            .block = {kThreads, 1, 1}};
}
__device__ __forceinline__ std::uint64_t first_item() {
    return std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::uint64_t item_step() { return std::uint64_t{gridDim.x} * kThreads; }

/// splitmix64 as a counter.
__device__ __forceinline__ std::uint64_t word_at(std::uint64_t base, std::uint64_t index) {
    std::uint64_t z = base + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/// What blocks of a size are aligned to, up to a word.
template <std::uint32_t kAlignment>
struct Store;
template <>
struct Store<2> {
    using Type = std::uint16_t;
};
template <>
struct Store<4> {
    using Type = std::uint32_t;
};
template <>
struct Store<8> {
    using Type = std::uint64_t;
};

/// A thread a word of a block; the last word of a block may be cut off.
template <std::uint32_t kUnitBytes>
__global__ void __launch_bounds__(kThreads) blocks_kernel(const SyntheticParams params) {
    wait_for_previous_kernel();
    allow_next_kernel();
    constexpr std::uint32_t kWords = (kUnitBytes + 7) / 8;
    constexpr std::uint32_t kAlignment = kUnitBytes % 8 == 0 ? 8 : kUnitBytes % 4 == 0 ? 4 : 2;
    using Piece = typename Store<kAlignment>::Type;
    const SyntheticRecipe& recipe = params.recipe;
    for (std::uint64_t item = first_item(); item < params.n_units * kWords; item += item_step()) {
        const std::uint64_t block = item / kWords;
        const auto at = static_cast<std::uint32_t>(item - block * kWords) * 8;
        std::uint64_t word = word_at(recipe.word_base, params.first_unit * kWords + item);
        for (std::uint32_t scale = 0; scale < 2; ++scale) {
            const std::uint32_t inside = recipe.scale_offset_bytes[scale] - at;
            if (scale >= recipe.n_scales || inside >= 8) continue;
            word &= ~(std::uint64_t{0xffff} << (8 * inside));
            word |= std::uint64_t{recipe.scale_bits[scale]} << (8 * inside);
        }
        auto* to = reinterpret_cast<Piece*>(static_cast<unsigned char*>(params.output) +
                                            block * kUnitBytes + at);
        for (std::uint32_t piece = 0; piece < 8 / kAlignment; ++piece)
            if (at + piece * kAlignment < kUnitBytes)
                to[piece] = static_cast<Piece>(word >> (8 * kAlignment * piece % 64));
    }
}

/// A thread a number. Products and sums apart, as on the CPU: a fused one rounds once.
__global__ void __launch_bounds__(kThreads) numbers_kernel(const SyntheticParams params) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const SyntheticRecipe& recipe = params.recipe;
    for (std::uint64_t item = first_item(); item < params.n_units; item += item_step()) {
        const std::uint64_t word = word_at(recipe.word_base, params.first_unit + item);
        const double r = __dadd_rn(__dmul_rn(static_cast<double>(word >> 40), 0x1p-23), -1.0);
        const float value =
            __double2float_rn(__dadd_rn(recipe.center, __dmul_rn(recipe.amplitude, r)));
        if (recipe.kind == SyntheticKind::f32) {
            static_cast<float*>(params.output)[item] = value;
        } else if (recipe.kind == SyntheticKind::f16) {
            static_cast<__half*>(params.output)[item] = __float2half_rn(value);
        } else {
            const std::uint32_t bits = __float_as_uint(value);
            static_cast<std::uint16_t*>(params.output)[item] =
                static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        }
    }
}

/// A thread a token's ids: an odd stride through a power of two meets every expert once.
__global__ void __launch_bounds__(kThreads) expert_ids_kernel(const SyntheticParams params) {
    wait_for_previous_kernel();
    allow_next_kernel();
    const SyntheticRecipe& recipe = params.recipe;
    const std::uint32_t n_ids = recipe.unit_bytes / sizeof(std::int32_t);
    const std::uint64_t n_experts = recipe.n_experts;
    const std::uint64_t n_strides = n_experts > 1 ? n_experts / 2 : 1;
    for (std::uint64_t item = first_item(); item < params.n_units; item += item_step()) {
        const std::uint64_t word = word_at(recipe.word_base, params.first_unit + item);
        const std::uint64_t stride = 2 * ((word >> 32) % n_strides) + 1;
        auto* ids = static_cast<std::int32_t*>(params.output) + item * n_ids;
        for (std::uint32_t k = 0; k < n_ids; ++k)
            ids[k] = static_cast<std::int32_t>((word % n_experts + k * stride) % n_experts);
    }
}

using Kernel = void (*)(SyntheticParams);
Kernel kernel_for(const SyntheticRecipe& recipe) {
    if (recipe.kind == SyntheticKind::expert_ids) return expert_ids_kernel;
    if (recipe.kind != SyntheticKind::blocks) return numbers_kernel;
    switch (recipe.unit_bytes) {
        case 34: return blocks_kernel<34>;    // q8_0
        case 66: return blocks_kernel<66>;    // iq2_xxs
        case 84: return blocks_kernel<84>;    // q2_k
        case 144: return blocks_kernel<144>;  // q4_k
        default: return nullptr;
    }
}

}  // namespace

void make_synthetic(const SyntheticParams& params, const Launch& launch) {
    const Kernel kernel = kernel_for(params.recipe);
    PLIMSOLL_KERNEL_CHECK(kernel != nullptr, "no synthetic weights with blocks of this size");
    PLIMSOLL_KERNEL_CHECK(reinterpret_cast<std::uintptr_t>(params.output) % 8 == 0,
                          "synthetic weights start at a whole word");
    if (params.n_units == 0) return;
    const std::uint64_t n_words = params.recipe.kind == SyntheticKind::blocks
                                      ? params.n_units * ((params.recipe.unit_bytes + 7) / 8)
                                      : params.n_units;
    launch_kernel(kernel, shape_of(n_words, launch), launch, params);
}

}  // namespace plimsoll::kernels::cuda
