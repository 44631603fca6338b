#include <string>

#include "kernels/cuda/ops.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

struct Case {
    WeightType table;
    WeightType projections;
    std::uint32_t hidden;
    std::uint32_t n_streams;
    std::uint32_t n_tokens;
};

void expect_inputs(const Case& c, cuda::Arithmetic arithmetic) {
    const bool fast = arithmetic == cuda::Arithmetic::fast;
    const std::string what = "table " + std::to_string(static_cast<int>(c.table)) +
                             " projections " + std::to_string(static_cast<int>(c.projections)) +
                             " hidden " + std::to_string(c.hidden) + " streams " +
                             std::to_string(c.n_streams) + " T " + std::to_string(c.n_tokens) +
                             (fast ? " fast" : " precise");
    const std::uint32_t vocab = 50;
    Random random(29 + c.hidden);
    const RandomWeight table(random, c.table, c.hidden, vocab);
    const RandomWeight e_proj(random, c.projections, c.hidden, c.hidden);
    const RandomWeight h_proj(random, c.projections, c.hidden, c.hidden);
    const std::vector<float> enorm = uniform_values(random, c.hidden);
    const std::vector<float> hnorm = uniform_values(random, c.hidden);
    const std::vector<float> streams =
        extreme_values(random, std::size_t{c.n_tokens} * c.n_streams * c.hidden);
    std::vector<std::int32_t> ids(c.n_tokens);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.below(vocab));

    std::vector<float> expected(streams.size());
    std::vector<float> workspace(mtp_input_workspace_bytes(c.n_tokens, c.n_streams, c.hidden) / 4);
    MtpInputParams params{
        table.matrix, e_proj.matrix,  h_proj.matrix,   enorm.data(),           hnorm.data(),
        ids.data(),   streams.data(), expected.data(), workspace.data(),       c.n_tokens,
        c.n_streams,  c.hidden,       1e-6f,           ActivationMode::precise};
    cpu::mtp_input(params, Workers(2));

    const DeviceWeight device_table(table), device_e(e_proj), device_h(h_proj);
    const DeviceArray<float> device_enorm(enorm), device_hnorm(hnorm), device_streams(streams);
    const DeviceArray<std::int32_t> device_ids(ids);
    DeviceArray<float> output(streams.size());
    DeviceBytes device_workspace(workspace.size() * 4);
    params.table = device_table.matrix();
    params.e_proj = device_e.matrix();
    params.h_proj = device_h.matrix();
    params.enorm = device_enorm.data();
    params.hnorm = device_hnorm.data();
    params.ids = device_ids.data();
    params.hidden_streams = device_streams.data();
    params.streams = output.data();
    params.workspace = device_workspace.data();
    DeviceStep step;
    cuda::mtp_input(params, arithmetic, step.launch());
    step.wait();
    EXPECT_TRUE(output.guard_intact() && device_workspace.guard_intact()) << what;
    const Limits limits = fast ? Limits{.cosine_min = 0.9999, .relative_max = 5e-3}
                               : Limits{.cosine_min = 0.9999999, .relative_max = 1e-5};
    expect_close(output.download(), expected, limits, what);
}

TEST(MtpInput, SumsTheProjectionsAsTheCpuDoes) {
    PLIMSOLL_NEEDS_GPU();
    for (const cuda::Arithmetic arithmetic : {cuda::Arithmetic::fast, cuda::Arithmetic::precise})
        for (const WeightType table :
             {WeightType::f16, WeightType::bf16, WeightType::f32, WeightType::q8_0})
            for (const std::uint32_t n_tokens : {1u, 7u, 40u}) {
                expect_inputs({table, WeightType::q8_0, 96, 4, n_tokens}, arithmetic);
                expect_inputs({table, WeightType::f32, 256, 2, n_tokens}, arithmetic);
            }
}

}  // namespace
}  // namespace plimsoll::kernels
