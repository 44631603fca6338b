#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "planner/check.hpp"
#include "planner/units.hpp"
#include "runtime/arena.hpp"
#include "runtime/engine_backend.hpp"
#include "runtime/forward_ops.hpp"
#include "runtime/memory_report.hpp"
#include "runtime/sampler.hpp"
#include "runtime/synthetic_load.hpp"

namespace plimsoll {
namespace {

/// A thread's share of a copy: longer than it costs to hand out.
constexpr std::uint64_t kCopyBytes = 256 * kKiB;

/// Everything it owns, in one place that does not move.
class CpuBackend final : public EngineBackend {
public:
    CpuBackend(const EngineSource& source, ArenaMemory device_memory, ArenaMemory host_memory,
               Schedule steps, Bindings bound);

    Status reset() override;
    [[nodiscard]] std::uint64_t position() const override { return position_; }
    [[nodiscard]] Result<std::span<const float>> feed(std::span<const TokenId> tokens) override;
    [[nodiscard]] Result<TokenId> feed_greedy(std::span<const TokenId> tokens) override;
    [[nodiscard]] Status feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                                  const LogitsSink& draft) override;
    [[nodiscard]] Result<std::vector<OpTime>> feed_timed(std::span<const TokenId> tokens) override;
    [[nodiscard]] const ExpertCounts& expert_counts() const override { return experts_.counts(); }
    [[nodiscard]] std::string memory_report() const override;

private:
    const Plan& plan_;
    const Model& model_;
    ArenaMemory device_;
    ArenaMemory host_;
    Schedule schedule_;
    Bindings bindings_;
    kernels::Workers workers_;
    ExpertSupply experts_;
    ForwardSetting setting_;
    std::uint64_t position_ = 0;
    mutable std::vector<OpTime>* op_times_ = nullptr;  // where ops are timed

    [[nodiscard]] std::uint64_t streams_row() const {
        return std::uint64_t{model_.hyper.n_streams} * model_.hyper.hidden_size;
    }
    [[nodiscard]] bool has_draft_head() const { return !bindings_.draft_head.empty(); }

    template <class T>
    [[nodiscard]] T* shared_buffer(BufferRole role) const {
        const auto phase = static_cast<std::size_t>(PhaseKind::embed);
        return reinterpret_cast<T*>(bindings_.buffers[phase][static_cast<std::size_t>(role)]);
    }
    /// Streams of the call's first token. With a draft head the row before it is the last token of
    /// the call before.
    [[nodiscard]] float* streams() const {
        return shared_buffer<float>(BufferRole::streams) + (has_draft_head() ? streams_row() : 0);
    }

    [[nodiscard]] ForwardStep step_for(std::span<const TokenId> tokens) const;
    /// Number of a layer of the main model; kNoLayer for the draft head's and for none.
    [[nodiscard]] std::int32_t layer_index(const LayerBinding* layer) const {
        const auto& layers = bindings_.layers;
        const bool is_main = layer >= layers.data() && layer < layers.data() + layers.size();
        return is_main ? static_cast<std::int32_t>(layer - layers.data()) : kNoLayer;
    }
    void run_phase(PhaseKind phase_kind, ForwardStep& step) const;
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

CpuBackend::CpuBackend(const EngineSource& source, ArenaMemory device_memory,
                       ArenaMemory host_memory, Schedule steps, Bindings bound)
    : plan_(*source.plan),
      model_(*source.model),
      device_(std::move(device_memory)),
      host_(std::move(host_memory)),
      schedule_(std::move(steps)),
      bindings_(std::move(bound)),
      workers_(source.n_threads),
      experts_(model_.hyper, bindings_),
      setting_{
          model_.hyper,
          bindings_,
          workers_,
          plan_.grant.precise ? kernels::ActivationMode::precise : kernels::ActivationMode::fast,
          plan_.grant.rounding ? kernels::CacheRounding::on : kernels::CacheRounding::off,
          experts_} {}

ForwardStep CpuBackend::step_for(std::span<const TokenId> tokens) const {
    return {.setting = setting_,
            .first_position = position_,
            .n_tokens = static_cast<std::uint32_t>(tokens.size()),
            .token_ids = shared_buffer<std::int32_t>(BufferRole::token_ids),
            .streams = streams()};
}

void CpuBackend::run_phase(PhaseKind phase_kind, ForwardStep& step) const {
    const Phase& phase = schedule_.phase(phase_kind);
    step.buffers = &bindings_.buffers[static_cast<std::size_t>(phase_kind)];
    for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op) {
        const OpKind kind = schedule_.ops[op].kind;
        const auto start = std::chrono::steady_clock::now();
        op_table()[static_cast<std::size_t>(kind)](step);
        if (op_times_ == nullptr) continue;
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        op_times_->push_back({kind, layer_index(step.layer), took.count()});
    }
}

/// Copies a streamed layer's weights to where its bindings point.
void CpuBackend::bring(const LayerBinding& layer) const {
    const std::byte* from = layer.streamed_from.data();
    std::byte* to = bindings_.staging_dense.data();
    workers_.parallel_for(layer.streamed_from.size(), kCopyBytes,
                          [&](std::uint64_t first, std::uint64_t last) {
                              std::copy(from + first, from + last, to + first);
                          });
}

void CpuBackend::run_layers(ForwardStep& step) const {
    for (const LayerBinding& layer : bindings_.layers) {
        if (!layer.streamed_from.empty()) bring(layer);
        step.layer = &layer;
        run_phase(layer_phase(layer.ratio), step);
    }
    step.layer = nullptr;
}

/// Ids into their buffer, then everything before the head.
ForwardStep CpuBackend::begin(std::span<const TokenId> tokens) {
    PLIMSOLL_CHECK(!tokens.empty(), "a call feeds at least one token");
    PLIMSOLL_CHECK(tokens.size() <= plan_.grant.chunk_tokens,
                   fmt::format("{} tokens are fed at once and {} are planned", tokens.size(),
                               plan_.grant.chunk_tokens));
    PLIMSOLL_CHECK(position_ + tokens.size() <= plan_.grant.context_tokens,
                   fmt::format("{} tokens are fed behind {} and the context has {}", tokens.size(),
                               position_, plan_.grant.context_tokens));
    static_assert(sizeof(TokenId) == sizeof(std::int32_t));
    std::copy(tokens.begin(), tokens.end(), shared_buffer<std::int32_t>(BufferRole::token_ids));
    if (has_draft_head())
        std::copy_n(bindings_.draft_head.front().hidden, streams_row(), streams() - streams_row());
    ForwardStep step = step_for(tokens);
    run_phase(PhaseKind::embed, step);
    run_layers(step);
    return step;
}

void CpuBackend::finish(const ForwardStep& step) {
    if (has_draft_head())
        std::copy_n(step.streams + (step.n_tokens - 1) * streams_row(), streams_row(),
                    bindings_.draft_head.front().hidden);
    position_ += step.n_tokens;
}

/// Logits of rows [first, first + count) of a step, count <= logits_rows.
std::span<const float> CpuBackend::head_rows(PhaseKind kind, const ForwardStep& step,
                                             std::uint32_t first, std::uint32_t count) const {
    ForwardStep rows = step;
    rows.streams += first * streams_row();
    rows.n_tokens = count;
    rows.head = kind == PhaseKind::head ? &bindings_.head : &bindings_.draft_head.front().head;
    run_phase(kind, rows);
    return {bindings_.logits, std::uint64_t{count} * model_.hyper.vocab_size};
}

Status CpuBackend::all_heads(PhaseKind kind, const ForwardStep& step,
                             const LogitsSink& sink) const {
    const std::uint64_t vocab = model_.hyper.vocab_size;
    for (std::uint32_t row = 0; row < step.n_tokens; row += bindings_.logits_rows) {
        const std::uint32_t count = std::min(bindings_.logits_rows, step.n_tokens - row);
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
Status CpuBackend::run_draft_head(const ForwardStep& main, const LogitsSink& sink) const {
    ForwardStep step = main;
    const bool starts = main.first_position == 0;
    step.first_position = starts ? 0 : main.first_position - 1;
    step.n_tokens = starts ? main.n_tokens - 1 : main.n_tokens;
    step.token_ids = starts ? main.token_ids + 1 : main.token_ids;
    step.streams = starts ? main.streams : main.streams - streams_row();
    if (step.n_tokens == 0) return ok_status();
    run_phase(PhaseKind::mtp_input, step);
    step.streams = step.floats(BufferRole::mtp_streams);
    step.layer = &bindings_.draft_head.front().layer;
    run_phase(PhaseKind::mtp_layer, step);
    step.layer = nullptr;
    return all_heads(PhaseKind::mtp_head, step, sink);
}

Status CpuBackend::reset() {
    const Hyperparameters& hyper = model_.hyper;
    position_ = 0;
    for (const LayerBinding& layer : bindings_.layers) {
        const std::uint32_t lanes = kernels::compressor_lanes(layer.ratio);
        if (layer.cache.state != nullptr)
            kernels::compressor_reset(layer.cache.state, layer.ratio, lanes * hyper.head_dim);
        if (layer.cache.index_state != nullptr)
            kernels::compressor_reset(layer.cache.index_state, layer.ratio,
                                      lanes * hyper.indexer_head_dim);
    }
    return ok_status();
}

Result<std::span<const float>> CpuBackend::feed(std::span<const TokenId> tokens) {
    const ForwardStep step = begin(tokens);
    finish(step);
    return head_rows(PhaseKind::head, step, step.n_tokens - 1, 1);
}

Result<TokenId> CpuBackend::feed_greedy(std::span<const TokenId> tokens) {
    const Result<std::span<const float>> logits = feed(tokens);
    if (!logits) return logits.error();
    return most_likely(*logits);
}

Status CpuBackend::feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                            const LogitsSink& draft) {
    PLIMSOLL_CHECK(!draft || has_draft_head(), "the plan has no draft head");
    const ForwardStep step = begin(tokens);
    finish(step);
    if (Status done = all_heads(PhaseKind::head, step, main); !done) return done;
    return draft ? run_draft_head(step, draft) : ok_status();
}

Result<std::vector<OpTime>> CpuBackend::feed_timed(std::span<const TokenId> tokens) {
    std::vector<OpTime> times;
    op_times_ = &times;
    const Result<std::span<const float>> logits = feed(tokens);
    op_times_ = nullptr;
    if (!logits) return logits.error();
    return times;
}

std::string CpuBackend::memory_report() const {
    const std::array<const ArenaMemory*, 2> arenas = {&device_, &host_};
    return plimsoll::memory_report(arenas);
}

}  // namespace

Result<std::unique_ptr<EngineBackend>> make_cpu_backend(const EngineSource& source) {
    const Plan& plan = *source.plan;
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
    const LoadProgress& progress = source.progress ? source.progress : silent;
    if (source.synthetic_seed) {
        fill_synthetic(bound->loads, *source.synthetic_seed, source.n_threads, progress);
    } else {
        const Status loaded = load_tensors(bound->loads, source.n_threads, progress);
        if (!loaded) return loaded.error();
    }
    std::unique_ptr<EngineBackend> backend =
        std::make_unique<CpuBackend>(source, std::move(*device), std::move(*host),
                                     std::move(schedule), std::move(bound->bindings));
    if (Status ready = backend->reset(); !ready) return ready.error();
    return backend;
}

}  // namespace plimsoll
