// Decode and prefill of the toy models through a plan, experts on the device or at the floor of the
// pool. Prints tokens/s.

#include <benchmark/benchmark.h>

#include <algorithm>

#include "planner/units.hpp"
#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

enum class Experts { on_device, at_the_floor };

PlannedEngine make(const char* name, bool precise, Experts experts, std::uint64_t chunk) {
    const CaseModels& models = models_of_case(name);
    RunSetting setting{.chunk_tokens = chunk, .precise = precise, .host_bytes = 256 * kMiB};
    if (precise) setting.kv_format = KvFormat::f32;
    if (experts == Experts::at_the_floor)
        setting.change = [](Request& request) {
            request.experts.set(Placement::host, Source::cli);
            request.experts_wish.value = Wish::require;
        };
    return {models, plan_of_case(models, setting)};
}

void set_rate(benchmark::State& state, std::uint64_t tokens_per_iteration) {
    state.counters["tokens/s"] = benchmark::Counter(
        static_cast<double>(state.iterations()) * static_cast<double>(tokens_per_iteration),
        benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, const char* name, bool precise, Experts experts) {
    const GoldenCase golden = read_golden_case(name);
    PlannedEngine planned = make(name, precise, experts, 64);
    Engine& engine = planned.engine;
    TokenId token = golden.tokens.front();
    for (auto _ : state) {
        if (engine.position() == 1024 && !engine.reset()) state.SkipWithError("reset");
        const std::span<const float> logits = *engine.feed({&token, 1});
        token =
            static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    set_rate(state, 1);
}

void prefill(benchmark::State& state, const char* name, bool precise) {
    constexpr std::uint64_t kTokens = 256;
    const GoldenCase golden = read_golden_case(name);
    PlannedEngine planned = make(name, precise, Experts::on_device, kTokens);
    for (auto _ : state) {
        if (!planned.engine.reset()) state.SkipWithError("reset");
        benchmark::DoNotOptimize(
            planned.engine.feed(std::span(golden.tokens).first(kTokens))->data());
    }
    set_rate(state, kTokens);
}

BENCHMARK_CAPTURE(decode, tiny_q2, "tiny-q2", false, Experts::on_device)->UseRealTime();
BENCHMARK_CAPTURE(decode, tiny_q2_floor, "tiny-q2", false, Experts::at_the_floor)->UseRealTime();
BENCHMARK_CAPTURE(decode, tiny_q2_precise, "tiny-q2", true, Experts::on_device)->UseRealTime();
BENCHMARK_CAPTURE(decode, tiny_q4, "tiny-q4", false, Experts::on_device)->UseRealTime();
BENCHMARK_CAPTURE(decode, tiny_f16, "tiny-f16", false, Experts::on_device)->UseRealTime();
BENCHMARK_CAPTURE(decode, mid_q2, "mid-q2", false, Experts::on_device)->UseRealTime();
BENCHMARK_CAPTURE(prefill, tiny_q2, "tiny-q2", false)->UseRealTime();
BENCHMARK_CAPTURE(prefill, mid_q2, "mid-q2", false)->UseRealTime();

}  // namespace
}  // namespace plimsoll::test

BENCHMARK_MAIN();
