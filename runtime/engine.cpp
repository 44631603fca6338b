#include "runtime/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/check.hpp"
#include "planner/units.hpp"
#include "runtime/arena.hpp"
#include "runtime/forward_ops.hpp"
#include "runtime/memory_report.hpp"

namespace plimsoll {
namespace {

/// A thread's share of a copy: longer than it costs to hand out.
constexpr std::uint64_t kCopyBytes = 256 * kKiB;

/// Regions are as large as the planned model's tensors: another model must not reach them.
Status check_model(const ModelRef& planned, const Model& model) {
    if (planned.fingerprint == model.fingerprint) return ok_status();
    return Error{ErrorKind::bad_file,
                 fmt::format("{} is another model than {}, which the plan was made for: plan again",
                             model.name, planned.name)};
}

Status check_models(const EngineSource& source) {
    const Plan& plan = *source.plan;
    if (Status same = check_model(plan.model, *source.model); !same) return same;
    if (!plan.grant.mtp) return ok_status();
    PLIMSOLL_CHECK(source.mtp != nullptr, "the plan has a draft head and none is given");
    return check_model(*plan.mtp_model, *source.mtp);
}

}  // namespace

/// Everything an engine owns, in one place that does not move.
struct Engine::Parts {
    const Plan& plan;
    const Model& model;
    ArenaMemory device;
    ArenaMemory host;
    Schedule schedule;
    Bindings bindings;
    kernels::Workers workers;
    ExpertSupply experts;
    ForwardSetting setting;
    std::uint64_t position = 0;

    Parts(const EngineSource& source, ArenaMemory device_memory, ArenaMemory host_memory,
          Schedule steps, Bindings bound)
        : plan(*source.plan),
          model(*source.model),
          device(std::move(device_memory)),
          host(std::move(host_memory)),
          schedule(std::move(steps)),
          bindings(std::move(bound)),
          workers(source.n_threads),
          experts(model.hyper, bindings),
          setting{
              model.hyper,
              bindings,
              workers,
              plan.grant.precise ? kernels::ActivationMode::precise : kernels::ActivationMode::fast,
              plan.grant.rounding ? kernels::CacheRounding::on : kernels::CacheRounding::off,
              experts} {}

    [[nodiscard]] std::uint64_t streams_row() const {
        return std::uint64_t{model.hyper.n_streams} * model.hyper.hidden_size;
    }
    [[nodiscard]] bool has_draft_head() const { return !bindings.draft_head.empty(); }

    template <class T>
    [[nodiscard]] T* shared_buffer(BufferRole role) const {
        const auto phase = static_cast<std::size_t>(PhaseKind::embed);
        return reinterpret_cast<T*>(bindings.buffers[phase][static_cast<std::size_t>(role)]);
    }
    /// Streams of the call's first token. With a draft head the row before it is the last token of
    /// the call before.
    [[nodiscard]] float* streams() const {
        return shared_buffer<float>(BufferRole::streams) + (has_draft_head() ? streams_row() : 0);
    }

    [[nodiscard]] ForwardStep step_for(std::span<const TokenId> tokens) const;
    void run_phase(PhaseKind kind, ForwardStep& step) const;
    void bring(const LayerBinding& layer) const;
    void run_layers(ForwardStep& step) const;
    ForwardStep begin(std::span<const TokenId> tokens);
    void finish(const ForwardStep& step);
    [[nodiscard]] std::span<const float> head_rows(PhaseKind kind, const ForwardStep& step,
                                                   std::uint32_t first, std::uint32_t count) const;
    [[nodiscard]] Status all_heads(PhaseKind kind, const ForwardStep& step,
                                   const LogitsSink& sink) const;
    [[nodiscard]] Status run_draft_head(const ForwardStep& main, const LogitsSink& sink) const;
};

ForwardStep Engine::Parts::step_for(std::span<const TokenId> tokens) const {
    return {.setting = setting,
            .first_position = position,
            .n_tokens = static_cast<std::uint32_t>(tokens.size()),
            .token_ids = shared_buffer<std::int32_t>(BufferRole::token_ids),
            .streams = streams()};
}

void Engine::Parts::run_phase(PhaseKind kind, ForwardStep& step) const {
    const Phase& phase = schedule.phase(kind);
    step.buffers = &bindings.buffers[static_cast<std::size_t>(kind)];
    for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
        op_table()[static_cast<std::size_t>(schedule.ops[op].kind)](step);
}

/// Copies a streamed layer's weights to where its bindings point.
void Engine::Parts::bring(const LayerBinding& layer) const {
    const std::byte* from = layer.streamed_from.data();
    std::byte* to = bindings.staging_dense.data();
    workers.parallel_for(layer.streamed_from.size(), kCopyBytes,
                         [&](std::uint64_t first, std::uint64_t last) {
                             std::copy(from + first, from + last, to + first);
                         });
}

void Engine::Parts::run_layers(ForwardStep& step) const {
    for (const LayerBinding& layer : bindings.layers) {
        if (!layer.streamed_from.empty()) bring(layer);
        step.layer = &layer;
        run_phase(layer_phase(layer.ratio), step);
    }
    step.layer = nullptr;
}

/// Ids into their buffer, then everything before the head.
ForwardStep Engine::Parts::begin(std::span<const TokenId> tokens) {
    PLIMSOLL_CHECK(!tokens.empty(), "a call feeds at least one token");
    PLIMSOLL_CHECK(tokens.size() <= plan.grant.chunk_tokens,
                   fmt::format("{} tokens are fed at once and {} are planned", tokens.size(),
                               plan.grant.chunk_tokens));
    PLIMSOLL_CHECK(position + tokens.size() <= plan.grant.context_tokens,
                   fmt::format("{} tokens are fed behind {} and the context has {}", tokens.size(),
                               position, plan.grant.context_tokens));
    static_assert(sizeof(TokenId) == sizeof(std::int32_t));
    std::copy(tokens.begin(), tokens.end(), shared_buffer<std::int32_t>(BufferRole::token_ids));
    if (has_draft_head())
        std::copy_n(bindings.draft_head.front().hidden, streams_row(), streams() - streams_row());
    ForwardStep step = step_for(tokens);
    run_phase(PhaseKind::embed, step);
    run_layers(step);
    return step;
}

void Engine::Parts::finish(const ForwardStep& step) {
    if (has_draft_head())
        std::copy_n(step.streams + (step.n_tokens - 1) * streams_row(), streams_row(),
                    bindings.draft_head.front().hidden);
    position += step.n_tokens;
}

/// Logits of rows [first, first + count) of a step, count <= logits_rows.
std::span<const float> Engine::Parts::head_rows(PhaseKind kind, const ForwardStep& step,
                                                std::uint32_t first, std::uint32_t count) const {
    ForwardStep rows = step;
    rows.streams += first * streams_row();
    rows.n_tokens = count;
    rows.head = kind == PhaseKind::head ? &bindings.head : &bindings.draft_head.front().head;
    run_phase(kind, rows);
    return {bindings.logits, std::uint64_t{count} * model.hyper.vocab_size};
}

Status Engine::Parts::all_heads(PhaseKind kind, const ForwardStep& step,
                                const LogitsSink& sink) const {
    const std::uint64_t vocab = model.hyper.vocab_size;
    for (std::uint32_t row = 0; row < step.n_tokens; row += bindings.logits_rows) {
        const std::uint32_t count = std::min(bindings.logits_rows, step.n_tokens - row);
        const std::span<const float> logits = head_rows(kind, step, row, count);
        for (std::uint32_t index = 0; index < count; ++index)
            if (Status taken =
                    sink(step.first_position + row + index, logits.subspan(index * vocab, vocab));
                !taken)
                return taken;
    }
    return ok_status();
}

/// The draft head over every position whose next token is in this call. Before the first token of
/// all there is none, so then row 0 pairs the call's first two tokens.
Status Engine::Parts::run_draft_head(const ForwardStep& main, const LogitsSink& sink) const {
    ForwardStep step = main;
    const bool starts = main.first_position == 0;
    step.first_position = starts ? 0 : main.first_position - 1;
    step.n_tokens = starts ? main.n_tokens - 1 : main.n_tokens;
    step.token_ids = starts ? main.token_ids + 1 : main.token_ids;
    step.streams = starts ? main.streams : main.streams - streams_row();
    if (step.n_tokens == 0) return ok_status();
    run_phase(PhaseKind::mtp_input, step);
    step.streams = step.floats(BufferRole::mtp_streams);
    step.layer = &bindings.draft_head.front().layer;
    run_phase(PhaseKind::mtp_layer, step);
    step.layer = nullptr;
    return all_heads(PhaseKind::mtp_head, step, sink);
}

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;

Result<Engine> Engine::create(const EngineSource& source) {
    const Plan& plan = *source.plan;
    PLIMSOLL_CHECK(!plan.refusal, "a refusal cannot be carried out");
    PLIMSOLL_CHECK(plan.nvme.experts == 0,
                   fmt::format("{} experts are planned on NVMe", plan.nvme.experts));
    if (const Status same = check_models(source); !same) return same.error();
    Result<ArenaMemory> device = ArenaMemory::reserve(plan.devices.front().arena);
    if (!device) return device.error();
    Result<ArenaMemory> host = ArenaMemory::reserve(plan.host.arena);
    if (!host) return host.error();
    Schedule schedule = schedule_of(plan, 0, *source.model, source.mtp);
    Result<BoundModel> bound =
        bind_model(plan, schedule, *source.model, source.mtp, *device, *host);
    if (!bound) return bound.error();
    device->seal();
    host->seal();
    const LoadProgress silent = [](std::uint64_t, std::uint64_t) {};
    const Status loaded =
        load_tensors(bound->loads, source.n_threads, source.progress ? source.progress : silent);
    if (!loaded) return loaded.error();
    Engine engine(std::make_unique<Parts>(source, std::move(*device), std::move(*host),
                                          std::move(schedule), std::move(bound->bindings)));
    engine.reset();
    return engine;
}

void Engine::reset() {
    Parts& parts = *parts_;
    const Hyperparameters& hyper = parts.model.hyper;
    parts.position = 0;
    for (const LayerBinding& layer : parts.bindings.layers) {
        const std::uint32_t lanes = kernels::compressor_lanes(layer.ratio);
        if (layer.cache.state != nullptr)
            kernels::compressor_reset(layer.cache.state, layer.ratio, lanes * hyper.head_dim);
        if (layer.cache.index_state != nullptr)
            kernels::compressor_reset(layer.cache.index_state, layer.ratio,
                                      lanes * hyper.indexer_head_dim);
    }
}

std::uint64_t Engine::position() const { return parts_->position; }
std::uint64_t Engine::chunk_tokens() const { return parts_->plan.grant.chunk_tokens; }

std::span<const float> Engine::feed(std::span<const TokenId> tokens) {
    const ForwardStep step = parts_->begin(tokens);
    parts_->finish(step);
    return parts_->head_rows(PhaseKind::head, step, step.n_tokens - 1, 1);
}

Status Engine::feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                        const LogitsSink& draft) {
    PLIMSOLL_CHECK(!draft || parts_->has_draft_head(), "the plan has no draft head");
    const ForwardStep step = parts_->begin(tokens);
    parts_->finish(step);
    if (Status done = parts_->all_heads(PhaseKind::head, step, main); !done) return done;
    return draft ? parts_->run_draft_head(step, draft) : ok_status();
}

const ExpertCounts& Engine::expert_counts() const { return parts_->experts.counts(); }

std::string Engine::memory_report() const {
    const std::array<const ArenaMemory*, 2> arenas = {&parts_->device, &parts_->host};
    return plimsoll::memory_report(arenas);
}

}  // namespace plimsoll
