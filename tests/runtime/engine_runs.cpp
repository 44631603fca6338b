#include "tests/runtime/engine_runs.hpp"

#include <algorithm>
#include <stdexcept>

namespace plimsoll::test {
namespace {

constexpr std::uint32_t kThreads = 2;

Engine make_engine(const CaseModels& models, const Plan& plan) {
    Result<Engine> engine = Engine::create({.plan = &plan,
                                            .model = &models.main,
                                            .mtp = plan.grant.mtp ? &models.mtp : nullptr,
                                            .n_threads = kThreads});
    if (!engine) throw std::runtime_error(engine.error().message);
    return std::move(*engine);
}

MachineFacts machine_for(const RunSetting& setting) {
    MachineFacts machine = cpu_machine(setting.device_bytes, 20e9);
    if (setting.on_gpu) {
        DeviceFacts& gpu = machine.devices.front();
        gpu.name = "cuda:0";
        gpu.architecture = "sm_90";
        gpu.pcie_bandwidth_bytes_per_s = 50e9;
        gpu.fp16_flops_per_s = 900e12;
    }
    machine.host_available_bytes = setting.host_bytes;
    return machine;
}

}  // namespace

Plan plan_of_case(const CaseModels& models, const RunSetting& setting) {
    const MachineFacts machine = machine_for(setting);
    Request request = default_request();
    request.reserve_bytes.value = 0;
    request.host_percent.value = 100;
    request.nvme.value = "off";
    request.context.set({setting.context_tokens, setting.context_tokens}, Source::cli);
    request.context_wish.value = Wish::require;
    request.prefill_chunk.set({setting.chunk_tokens, setting.chunk_tokens}, Source::cli);
    request.prefill_chunk_wish.value = Wish::require;
    request.mtp_model.value = models.mtp.path;
    request.mtp.value = setting.mtp ? Wish::require : Wish::off;
    request.precise.value = setting.precise;
    request.rounding.value = setting.rounding;
    request.kv_format.value = setting.kv_format;
    if (setting.change) setting.change(request);
    Result<Plan> plan = make_plan(models.main, &models.mtp, machine, request);
    if (!plan) throw std::runtime_error(plan.error().message);
    if (plan->refusal)
        throw std::runtime_error("refused: " + plan->refusal->pool + " short by " +
                                 std::to_string(plan->refusal->short_bytes));
    if (const auto problem = validate(*plan)) throw std::runtime_error(*problem);
    return std::move(*plan);
}

PlannedEngine::PlannedEngine(const CaseModels& models, Plan made)
    : plan(std::make_unique<const Plan>(std::move(made))), engine(make_engine(models, *plan)) {}

Logits feed(PlannedEngine& planned, std::span<const TokenId> tokens, std::uint64_t chunk) {
    Engine& engine = planned.engine;
    if (chunk == 0) chunk = engine.chunk_tokens();
    Logits out;
    const auto into = [](std::vector<float>& rows) {
        return [&rows](std::uint64_t position, std::span<const float> logits) -> Status {
            if (position * logits.size() != rows.size())
                throw std::runtime_error("positions come out of order");
            rows.insert(rows.end(), logits.begin(), logits.end());
            return ok_status();
        };
    };
    if (!engine.reset()) throw std::runtime_error("the engine cannot be reset");
    while (!tokens.empty()) {
        const std::size_t count = std::min<std::size_t>(chunk, tokens.size());
        const Status fed =
            engine.feed_all(tokens.first(count), into(out.main),
                            planned.plan->grant.mtp ? LogitsSink(into(out.draft)) : LogitsSink());
        if (!fed) throw std::runtime_error(fed.error().message);
        tokens = tokens.subspan(count);
    }
    return out;
}

std::vector<TokenId> generate(PlannedEngine& planned, std::span<const TokenId> prompt,
                              std::size_t count) {
    Engine& engine = planned.engine;
    if (!engine.reset()) throw std::runtime_error("the engine cannot be reset");
    std::span<const float> logits;
    for (std::span<const TokenId> left = prompt; !left.empty();) {
        const std::size_t fed = std::min<std::size_t>(engine.chunk_tokens(), left.size());
        logits = *engine.feed(left.first(fed));
        left = left.subspan(fed);
    }
    std::vector<TokenId> tokens;
    while (tokens.size() < count) {
        const auto best = std::max_element(logits.begin(), logits.end());
        tokens.push_back(static_cast<TokenId>(best - logits.begin()));
        logits = *engine.feed({&tokens.back(), 1});
    }
    return tokens;
}

}  // namespace plimsoll::test
