#include "runtime/synthetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/half.hpp"

namespace plimsoll {
namespace {

Tensor tensor_of(std::string name, TensorType type, std::vector<std::uint64_t> dims) {
    Tensor tensor{.name = std::move(name), .type = type, .dims = std::move(dims)};
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : tensor.dims) elements *= dim;
    tensor.size_bytes = storage_bytes(type, elements);
    return tensor;
}

std::vector<std::byte> all_bytes(std::uint64_t seed, const Tensor& tensor) {
    std::vector<std::byte> bytes(tensor.size_bytes);
    SyntheticTensor(seed, tensor, 16).fill(0, bytes);
    return bytes;
}

template <class T>
T value_at(const std::vector<std::byte>& bytes, std::size_t index) {
    T value{};
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
}

// From the page that defines synthetic models: two programs that follow it make the same words.
TEST(WordStream, HasThePublishedCheckValues) {
    const WordStream output(1, "output.weight");
    EXPECT_EQ(output[0], 0x136f2c7f5de3b2e7u);
    EXPECT_EQ(output[1], 0xcecc3646f85a4a3bu);
    EXPECT_EQ(output[1000], 0xb5ce3fd7b4f71900u);
    const WordStream query(1, "blk.0.attn_q_a.weight");
    EXPECT_EQ(query[0], 0x55567fc1d5df6bcau);
    EXPECT_EQ(query[1000], 0x8162d31426ce804du);
    const WordStream prompt(22, "prompt");
    EXPECT_EQ(prompt[0], 0x0accf76f9f76b414u);
    EXPECT_EQ(prompt[1], 0x2e86b676393cefcfu);
}

struct ExpectedSpread {
    const char* name;
    double center;
    double amplitude;
};

TEST(SyntheticTensor, PlainNumbersHaveTheSpreadOfTheirName) {
    const double by_row = std::sqrt(3.0 / 64);
    const ExpectedSpread kExpected[] = {{"blk.0.attn_norm.weight", 1, 0.25},
                                        {"mtp.0.enorm.weight", 1, 0.25},
                                        {"blk.3.hc_attn_base.weight", 0, 0.5},
                                        {"output_hc_scale.weight", 1, 0.25},
                                        {"blk.2.attn_compressor_ape.weight", 0, 0.5},
                                        {"blk.2.attn_sinks.weight", 0, 1},
                                        {"blk.4.exp_probs_b.bias", 0, 0.1},
                                        {"token_embd.weight", 0, 1},
                                        {"output.weight", 0, 4 * by_row},
                                        {"blk.1.attn_q_a.weight", 0, by_row}};
    for (const ExpectedSpread& expected : kExpected) {
        const auto bytes = all_bytes(7, tensor_of(expected.name, TensorType::f32, {64, 8}));
        const WordStream words(7, expected.name);
        for (std::size_t index = 0; index < 64 * 8; ++index) {
            const double r = static_cast<double>(words[index] >> 40) / 8388608.0 - 1;
            EXPECT_EQ(value_at<float>(bytes, index),
                      static_cast<float>(expected.center + expected.amplitude * r))
                << expected.name << " " << index;
        }
    }
}

TEST(SyntheticTensor, HalvesAreTheFloatsRounded) {
    const auto floats =
        all_bytes(3, tensor_of("blk.0.ffn_gate_inp.weight", TensorType::f32, {64, 4}));
    const auto halves =
        all_bytes(3, tensor_of("blk.0.ffn_gate_inp.weight", TensorType::f16, {64, 4}));
    for (std::size_t index = 0; index < 64 * 4; ++index)
        EXPECT_EQ(value_at<std::uint16_t>(halves, index),
                  kernels::f16_from_f32(value_at<float>(floats, index)));
}

struct BlockCase {
    TensorType type;
    std::size_t block_bytes;
    std::vector<std::pair<std::size_t, double>> scales;  // offset, value times sqrt(row)
};

TEST(SyntheticTensor, BlocksAreWordsWithTheScalesPutIn) {
    const BlockCase kCases[] = {{TensorType::q8_0, 34, {{0, 1 / 73.9}}},
                                {TensorType::q2_k, 84, {{80, 1 / 13.87}, {82, 1.5 / 13.87}}},
                                {TensorType::q4_k, 144, {{0, 1 / 258.3}, {2, 7.5 / 258.3}}},
                                {TensorType::iq2_xxs, 66, {{0, 1 / 53.36}}}};
    for (const BlockCase& block_case : kCases) {
        const Tensor tensor = tensor_of("blk.0.ffn_up_exps.weight", block_case.type, {512, 4});
        const auto bytes = all_bytes(9, tensor);
        const WordStream words(9, tensor.name);
        const std::size_t words_per_block = (block_case.block_bytes + 7) / 8;
        for (std::size_t block = 0; block < bytes.size() / block_case.block_bytes; ++block) {
            std::vector<std::byte> expected(words_per_block * 8);
            for (std::size_t index = 0; index < words_per_block; ++index) {
                const std::uint64_t word = words[block * words_per_block + index];
                std::memcpy(expected.data() + index * 8, &word, 8);
            }
            for (const auto& [offset, value] : block_case.scales) {
                const std::uint16_t bits =
                    kernels::f16_from_f32(static_cast<float>(value / std::sqrt(512.0)));
                std::memcpy(expected.data() + offset, &bits, 2);
            }
            EXPECT_EQ(std::memcmp(expected.data(), bytes.data() + block * block_case.block_bytes,
                                  block_case.block_bytes),
                      0)
                << info_of(block_case.type).name << " block " << block;
        }
    }
}

TEST(SyntheticTensor, RoutingTablesNameDistinctExperts) {
    const auto bytes =
        all_bytes(5, tensor_of("blk.0.ffn_gate_tid2eid.weight", TensorType::i32, {6, 300}));
    for (std::size_t token = 0; token < 300; ++token) {
        std::uint32_t seen = 0;
        for (std::size_t k = 0; k < 6; ++k) {
            const auto id = value_at<std::int32_t>(bytes, token * 6 + k);
            ASSERT_GE(id, 0);
            ASSERT_LT(id, 16);
            EXPECT_EQ(seen >> id & 1u, 0u) << "token " << token;
            seen |= 1u << id;
        }
    }
}

TEST(SyntheticTensor, AnyRangeIsAPieceOfTheWhole) {
    std::mt19937_64 random(11);
    for (const TensorType type :
         {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q8_0, TensorType::q2_k,
          TensorType::q4_k, TensorType::iq2_xxs}) {
        const Tensor tensor = tensor_of("blk.1.ffn_down_exps.weight", type, {256, 12});
        const auto whole = all_bytes(2, tensor);
        const SyntheticTensor made(2, tensor, 16);
        for (int round = 0; round < 200; ++round) {
            const std::size_t first = random() % whole.size();
            const std::size_t size = random() % (whole.size() - first + 1);
            std::vector<std::byte> piece(size);
            made.fill(first, piece);
            ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.data() + first))
                << info_of(type).name << " [" << first << ", +" << size << "), seed 11";
        }
    }
}

}  // namespace
}  // namespace plimsoll
