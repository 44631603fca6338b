#include "runtime/engine.hpp"

#include <fmt/format.h>

#include <utility>

#include "planner/check.hpp"
#include "runtime/engine_backend.hpp"

namespace plimsoll {
namespace {

/// Regions are as large as the planned model's tensors: another model must not reach them.
Status check_model(const ModelRef& planned, const Model& model) {
    if (planned.fingerprint == model.fingerprint) return ok_status();
    return Error{ErrorKind::bad_file,
                 fmt::format("{} is another model than {}, which the plan was made for: plan again",
                             model.name, planned.name)};
}

}  // namespace

Status check_models(const EngineSource& source) {
    const Plan& plan = *source.plan;
    if (Status same = check_model(plan.model, *source.model); !same) return same;
    if (!plan.grant.mtp) return ok_status();
    PLIMSOLL_CHECK(source.mtp != nullptr, "the plan has a draft head and none is given");
    return check_model(*plan.mtp_model, *source.mtp);
}

Engine::Engine(std::unique_ptr<EngineBackend> backend, std::uint64_t chunk_tokens)
    : backend_(std::move(backend)), chunk_tokens_(chunk_tokens) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

Result<Engine> Engine::create(const EngineSource& source) {
    const Plan& plan = *source.plan;
    PLIMSOLL_CHECK(!plan.refusal, "a refusal cannot be carried out");
    PLIMSOLL_CHECK(plan.nvme.experts == 0,
                   fmt::format("{} experts are planned on NVMe", plan.nvme.experts));
    if (const Status same = check_models(source); !same) return same.error();
    const bool is_cpu = plan.devices.front().facts.architecture == "cpu";
    Result<std::unique_ptr<EngineBackend>> backend =
        is_cpu ? make_cpu_backend(source) : make_gpu_backend(source);
    if (!backend) return backend.error();
    return Engine(std::move(*backend), plan.grant.chunk_tokens);
}

Status Engine::reset() { return backend_->reset(); }

std::uint64_t Engine::position() const { return backend_->position(); }

Result<std::span<const float>> Engine::feed(std::span<const TokenId> tokens) {
    return backend_->feed(tokens);
}

Result<TokenId> Engine::feed_greedy(std::span<const TokenId> tokens) {
    return backend_->feed_greedy(tokens);
}

Status Engine::feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                        const LogitsSink& draft) {
    return backend_->feed_all(tokens, main, draft);
}

Result<std::vector<OpTime>> Engine::feed_timed(std::span<const TokenId> tokens) {
    return backend_->feed_timed(tokens);
}

const ExpertCounts& Engine::expert_counts() const { return backend_->expert_counts(); }

std::string Engine::memory_report() const { return backend_->memory_report(); }

}  // namespace plimsoll
