#include "runtime/synthetic.hpp"

#include "kernels/cuda/synthetic.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::test {
namespace {

using namespace kernels::test;

struct TensorCase {
    const char* name;
    TensorType type;
    std::vector<std::uint64_t> dims;
};
const TensorCase kCases[] = {
    {"blk.0.ffn_up_exps.weight", TensorType::iq2_xxs, {512, 3, 2}},
    {"blk.0.ffn_down_exps.weight", TensorType::q2_k, {768, 5}},
    {"blk.1.ffn_up_exps.weight", TensorType::q4_k, {256, 7}},
    {"output.weight", TensorType::q8_0, {96, 11}},
    {"blk.0.attn_norm.weight", TensorType::f32, {1000}},
    {"blk.0.ffn_gate_inp.weight", TensorType::f16, {64, 9}},
    {"token_embd.weight", TensorType::bf16, {64, 9}},
    {"blk.0.exp_probs_b.bias", TensorType::f32, {16}},
    {"blk.0.ffn_gate_tid2eid.weight", TensorType::i32, {6, 100}},
};

TEST(SyntheticOnTheGpu, HasTheBytesOfTheCpuForAnyUnits) {
    PLIMSOLL_NEEDS_GPU();
    DeviceStep step;
    for (const TensorCase& tensor_case : kCases) {
        Tensor tensor{.name = tensor_case.name, .type = tensor_case.type, .dims = tensor_case.dims};
        std::uint64_t n_elements = 1;
        for (const std::uint64_t dim : tensor.dims) n_elements *= dim;
        tensor.size_bytes = storage_bytes(tensor.type, n_elements);
        const SyntheticTensor synthetic(12345, tensor, 16);
        std::vector<std::byte> expected(tensor.size_bytes);
        synthetic.fill(0, expected);
        const kernels::cuda::SyntheticRecipe recipe = synthetic.recipe();
        const std::uint64_t n_units = tensor.size_bytes / recipe.unit_bytes;
        for (const auto& [first, n] : {std::pair<std::uint64_t, std::uint64_t>{0, n_units},
                                       {n_units / 3, n_units / 2},
                                       {n_units - 1, 1},
                                       {2, 0}}) {
            DeviceBytes made(n * recipe.unit_bytes);
            kernels::cuda::make_synthetic({recipe, first, n, made.data()}, step.launch());
            step.wait();
            std::vector<std::byte> bytes(made.size_bytes());
            made.download(bytes.data(), bytes.size());
            const auto from =
                expected.begin() + static_cast<std::ptrdiff_t>(first * recipe.unit_bytes);
            expect_equal(
                bytes,
                std::vector<std::byte>(from, from + static_cast<std::ptrdiff_t>(bytes.size())),
                tensor.name + " from unit " + std::to_string(first));
            EXPECT_TRUE(made.guard_intact()) << tensor.name;
        }
    }
}

}  // namespace
}  // namespace plimsoll::test
