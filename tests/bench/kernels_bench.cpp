// Times the CPU operations at DeepSeek-V4-Flash's shapes, on random weights, and prints weight
// bytes/s and products/s.

#include <benchmark/benchmark.h>

#include <deque>
#include <thread>

#include "tests/kernels/support.hpp"

namespace plimsoll::kernels {
namespace {

using namespace test;

const Workers& workers() {
    static const Workers pool(std::thread::hardware_concurrency());
    return pool;
}

/// Random blocks in place of a RandomWeight, whose reference values would take minutes at these
/// sizes.
struct Blocks {
    std::vector<std::byte> bytes;
    WeightMatrix matrix;

    Blocks(WeightType type, std::uint32_t n_in, std::uint32_t n_out)
        : bytes(n_out * weight_row_bytes(type, n_in)) {
        Random random(1);
        const RandomWeight row(random, type, n_in, 1);
        for (std::size_t at = 0; at < bytes.size(); at += row.bytes.size())
            std::memcpy(&bytes[at], row.bytes.data(), row.bytes.size());
        matrix = {bytes.data(), type, n_in, n_out};
    }
};

void set_rates(benchmark::State& state, double weight_bytes, double products) {
    const auto iterations = static_cast<double>(state.iterations());
    state.counters["weight_bytes/s"] =
        benchmark::Counter(weight_bytes * iterations, benchmark::Counter::kIsRate);
    state.counters["products/s"] =
        benchmark::Counter(products * iterations, benchmark::Counter::kIsRate);
}

void matmul(benchmark::State& state, WeightType type, ActivationMode mode) {
    const std::uint32_t n_in = 4096, n_out = 2048;
    const auto n_tokens = static_cast<std::uint32_t>(state.range(0));
    const Blocks weight(type, n_in, n_out);
    const ActivationFormat format = activation_format(type, mode);
    Random random(2);
    const std::vector<float> x = uniform_values(random, std::size_t{n_tokens} * n_in);
    std::vector<std::byte> input(n_tokens * activation_row_bytes(format, n_in));
    if (format == ActivationFormat::f32)
        std::memcpy(input.data(), x.data(), input.size());
    else
        cpu::quantize_activations({x.data(), input.data(), n_tokens, n_in, format}, workers());
    std::vector<float> y(std::size_t{n_tokens} * n_out);
    for (auto _ : state)
        cpu::matmul({.weight = weight.matrix,
                     .input = input.data(),
                     .output = y.data(),
                     .output_stride = 0,
                     .n_tokens = n_tokens,
                     .input_format = format},
                    workers());
    set_rates(state, static_cast<double>(weight.bytes.size()),
              static_cast<double>(n_in) * n_out * n_tokens);
}
BENCHMARK_CAPTURE(matmul, f16, WeightType::f16, ActivationMode::fast)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, q8_0, WeightType::q8_0, ActivationMode::fast)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, q2_k, WeightType::q2_k, ActivationMode::fast)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, q4_k, WeightType::q4_k, ActivationMode::fast)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, iq2_xxs, WeightType::iq2_xxs, ActivationMode::fast)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, q8_0_precise, WeightType::q8_0, ActivationMode::precise)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();
BENCHMARK_CAPTURE(matmul, iq2_xxs_precise, WeightType::iq2_xxs, ActivationMode::precise)
    ->Arg(1)
    ->Arg(64)
    ->UseRealTime();

/// Six experts of one token, q2 recipe.
void experts_of_a_token(benchmark::State& state) {
    const std::uint32_t hidden = 4096, ff_dim = 2048, k = 6;
    std::deque<Blocks> weights;
    std::vector<ExpertRun> runs;
    double bytes = 0;
    for (std::uint32_t e = 0; e < k; ++e) {
        const Blocks& gate = weights.emplace_back(WeightType::iq2_xxs, hidden, ff_dim);
        const Blocks& up = weights.emplace_back(WeightType::iq2_xxs, hidden, ff_dim);
        const Blocks& down = weights.emplace_back(WeightType::q2_k, ff_dim, hidden);
        runs.push_back({gate.matrix, up.matrix, down.matrix, e, e + 1});
        bytes += static_cast<double>(gate.bytes.size() + up.bytes.size() + down.bytes.size());
    }
    Random random(3);
    const std::vector<float> x = uniform_values(random, hidden), expert_weights(k, 0.25f);
    std::vector<std::byte> input(activation_q16k_bytes(hidden));
    cpu::quantize_activations({x.data(), input.data(), 1, hidden, ActivationFormat::q16k},
                              workers());
    const std::vector<std::int32_t> assignments = {0, 1, 2, 3, 4, 5};
    std::vector<std::byte> workspace(
        expert_ffn_workspace_bytes(k, ff_dim, WeightType::q2_k, ActivationMode::fast));
    std::vector<float> y(hidden);
    for (auto _ : state)
        cpu::expert_ffn(
            {runs, assignments.data(), expert_weights.data(), input.data(), y.data(),
             workspace.data(), k, 1, hidden, ff_dim, 10.0f, ActivationMode::fast, false},
            workers());
    set_rates(state, bytes, 3.0 * hidden * ff_dim * k);
}
BENCHMARK(experts_of_a_token)->UseRealTime();

/// One token over 128 window rows and 512 compressed rows, packed.
void attention_of_a_token(benchmark::State& state) {
    const std::uint32_t n_heads = 64, head_dim = 512, rope_dim = 64, n_rows = 512;
    const auto format = state.range(0) != 0 ? KvFormat::packed : KvFormat::f32;
    Random random(4);
    const std::vector<float> rows = uniform_values(random, std::size_t{n_rows} * head_dim),
                             sinks(n_heads);
    const std::vector<float> q = uniform_values(random, std::size_t{n_heads} * head_dim);
    Region region(kv_rows_bytes(format, n_rows, head_dim, rope_dim));
    const KvRows cached{region.data(), format, n_rows, head_dim, rope_dim};
    cpu::store_kv_rows({rows.data(), cached, 0, n_rows}, workers());
    std::vector<float> output(q.size());
    AttentionParams params{};
    params.q = q.data();
    params.chunk_rows = rows.data();
    params.ring = params.compressed = cached;
    params.sinks = sinks.data();
    params.output = output.data();
    params.first_position = 2047;
    params.n_tokens = 1;
    params.n_heads = n_heads;
    params.head_dim = head_dim;
    params.window = 128;
    params.ratio = 4;
    for (auto _ : state) cpu::attention(params, workers());
    set_rates(state, 0.0, 2.0 * 640 * head_dim * n_heads);
}
BENCHMARK(attention_of_a_token)->ArgName("packed")->Arg(0)->Arg(1)->UseRealTime();

/// What handing out and collecting a trivial job costs.
void empty_parallel_region(benchmark::State& state) {
    for (auto _ : state) workers().parallel_for(64, 1, [](std::uint64_t, std::uint64_t) {});
}
BENCHMARK(empty_parallel_region)->UseRealTime();

}  // namespace
}  // namespace plimsoll::kernels

BENCHMARK_MAIN();
