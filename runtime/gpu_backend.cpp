#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/cuda/device.hpp"
#include "planner/check.hpp"
#include "planner/units.hpp"
#include "runtime/arena.hpp"
#include "runtime/engine_backend.hpp"
#include "runtime/gpu_loader.hpp"
#include "runtime/gpu_memory.hpp"
#include "runtime/gpu_step.hpp"
#include "runtime/memory_report.hpp"

namespace plimsoll {
namespace {

namespace c = kernels::cuda;

/// A plan on one GPU. Chunks launch the schedule's ops one by one; a single token in the fast mode
/// replays a graph of its decode steps, which was captured once.
class GpuBackend final : public EngineBackend {
public:
    GpuBackend(const EngineSource& source, c::Device device, ArenaMemory device_memory,
               ArenaMemory host_memory, Schedule steps, Bindings bound);

    /// Captures the decode graph. The last thing that takes memory.
    [[nodiscard]] Status prepare();
    /// Runs every kind of step once: what CUDA and cuBLAS put off until a kernel's first launch,
    /// its stack above all, is then on the device before the engine is ready.
    [[nodiscard]] Status rehearse();

    Status reset() override;
    [[nodiscard]] std::uint64_t position() const override { return position_; }
    [[nodiscard]] Result<std::span<const float>> feed(std::span<const TokenId> tokens) override;
    [[nodiscard]] Result<TokenId> feed_greedy(std::span<const TokenId> tokens) override;
    [[nodiscard]] Status feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                                  const LogitsSink& draft) override;
    [[nodiscard]] Result<std::vector<OpTime>> feed_timed(std::span<const TokenId> tokens) override;
    [[nodiscard]] const ExpertCounts& expert_counts() const override { return counts_; }
    [[nodiscard]] std::string memory_report() const override;

private:
    const Plan& plan_;
    const Model& model_;
    c::Device device_;
    ArenaMemory device_memory_;
    ArenaMemory host_memory_;
    Schedule schedule_;
    Bindings bindings_;
    c::Blas blas_;
    GpuSetting setting_;
    c::Graph decode_graph_;
    ExpertCounts counts_;  // all experts are on the device
    std::uint64_t position_ = 0;
    /// The token that state.token holds for the next position; nothing where the state is not the
    /// next step's.
    std::optional<TokenId> token_on_device_;
    std::vector<OpTime>* op_times_ = nullptr;  // where ops are timed

    [[nodiscard]] std::uint64_t streams_row() const {
        return std::uint64_t{model_.hyper.n_streams} * model_.hyper.hidden_size;
    }
    [[nodiscard]] bool has_draft_head() const { return !bindings_.draft_head.empty(); }
    [[nodiscard]] bool decodes_in_steps() const {
        return setting_.arithmetic == c::Arithmetic::fast;
    }

    template <class T>
    [[nodiscard]] T* shared_buffer(BufferRole role, PhaseKind kind = PhaseKind::embed) const {
        return reinterpret_cast<T*>(
            bindings_.buffers[static_cast<std::size_t>(kind)][static_cast<std::size_t>(role)]);
    }
    [[nodiscard]] c::StepState* state() const {
        return shared_buffer<c::StepState>(BufferRole::step_state);
    }
    /// Streams of the call's first token; with a draft head the row before it is the last token of
    /// the call before.
    [[nodiscard]] float* streams() const {
        return shared_buffer<float>(BufferRole::streams) + (has_draft_head() ? streams_row() : 0);
    }
    // The pinned ring after loading: ids in, then logits out.
    [[nodiscard]] std::int32_t* host_ids() const {
        return reinterpret_cast<std::int32_t*>(bindings_.staging_ring.data());
    }
    [[nodiscard]] float* host_logits() const {
        return reinterpret_cast<float*>(bindings_.staging_ring.data() +
                                        align_up(plan_.grant.chunk_tokens * sizeof(TokenId), 256));
    }

    [[nodiscard]] GpuStep step_of(std::uint32_t n_tokens, bool overlaps) const;
    void run_op(const GpuStep& step, OpKind kind);
    void run_phase(PhaseKind kind, GpuStep& step);
    void run_chunk_layers(GpuStep& step);
    void run_decode_layers(GpuStep& step);
    void launch_decode(bool overlaps);
    void keep_hidden(std::uint32_t n_tokens);
    GpuStep begin_chunk(std::span<const TokenId> tokens);
    void check_room(std::size_t n_tokens) const;
    void compute_head(PhaseKind kind, const GpuStep& step, std::uint32_t first,
                      std::uint32_t count);
    void compute_logits(std::span<const TokenId> tokens);
    void decode(TokenId token);
    [[nodiscard]] std::int32_t layer_index(const LayerBinding* layer) const;
    [[nodiscard]] Result<std::span<const float>> logits_to_host(std::uint32_t n_rows);
    [[nodiscard]] Status all_heads(PhaseKind kind, const GpuStep& step, const LogitsSink& sink);
    [[nodiscard]] Status run_draft_head(const GpuStep& main, const LogitsSink& sink);
    [[nodiscard]] Status wait();
};

GpuBackend::GpuBackend(const EngineSource& source, c::Device device, ArenaMemory device_memory,
                       ArenaMemory host_memory, Schedule steps, Bindings bound)
    : plan_(*source.plan),
      model_(*source.model),
      device_(std::move(device)),
      device_memory_(std::move(device_memory)),
      host_memory_(std::move(host_memory)),
      schedule_(std::move(steps)),
      bindings_(std::move(bound)),
      setting_{model_.hyper, bindings_,
               plan_.grant.precise ? c::Arithmetic::precise : c::Arithmetic::fast,
               plan_.grant.rounding ? kernels::CacheRounding::on : kernels::CacheRounding::off,
               blas_} {}

GpuStep GpuBackend::step_of(std::uint32_t n_tokens, bool overlaps) const {
    c::Launch launch = device_.launch(state());
    launch.overlaps_previous = overlaps;
    return {.setting = setting_,
            .launch = launch,
            .first_position = position_,
            .n_tokens = n_tokens,
            .token_ids = shared_buffer<std::int32_t>(BufferRole::token_ids),
            .streams = streams()};
}

std::int32_t GpuBackend::layer_index(const LayerBinding* layer) const {
    const auto& layers = bindings_.layers;
    const bool is_main = layer >= layers.data() && layer < layers.data() + layers.size();
    return is_main ? static_cast<std::int32_t>(layer - layers.data()) : kNoLayer;
}

void GpuBackend::run_op(const GpuStep& step, OpKind kind) {
    if (op_times_ != nullptr) device_.start_timing();
    gpu_op(kind)(step);
    if (op_times_ != nullptr)
        op_times_->push_back({kind, layer_index(step.layer), device_.stop_timing_seconds()});
}

void GpuBackend::run_phase(PhaseKind kind, GpuStep& step) {
    const Phase& phase = schedule_.phase(kind);
    step.buffers = &bindings_.buffers[static_cast<std::size_t>(kind)];
    for (std::uint32_t op = phase.first_op; op < phase.last_op; ++op)
        run_op(step, schedule_.ops[op].kind);
}

void GpuBackend::run_chunk_layers(GpuStep& step) {
    for (const LayerBinding& layer : bindings_.layers) {
        step.layer = &layer;
        run_phase(layer_phase(layer.ratio), step);
    }
    step.layer = nullptr;
}

void GpuBackend::run_decode_layers(GpuStep& step) {
    for (const LayerBinding& layer : bindings_.layers) {
        step.layer = &layer;
        step.next_layer = &layer == &bindings_.layers.back() ? nullptr : &layer + 1;
        run_phase(decode_layer_phase(layer.ratio), step);
    }
    step.layer = nullptr;
}

/// All launches of one token, from state.token to the next one.
void GpuBackend::launch_decode(bool overlaps) {
    GpuStep step = step_of(1, overlaps);
    run_phase(PhaseKind::decode_embed, step);
    run_decode_layers(step);
    step.head = &bindings_.head;
    run_phase(PhaseKind::decode_head, step);
    keep_hidden(1);
}

/// The last token's streams, for the draft head's first row of the next call.
void GpuBackend::keep_hidden(std::uint32_t n_tokens) {
    if (!has_draft_head()) return;
    device_.copy_within_device(bindings_.draft_head.front().hidden,
                               streams() + (n_tokens - 1) * streams_row(),
                               streams_row() * sizeof(float));
}

Status GpuBackend::wait() {
    const c::DeviceProblem problem = device_.wait();
    if (problem.is_none()) return ok_status();
    return error_of(plan_.devices.front().facts.name, problem, ErrorKind::internal);
}

Status GpuBackend::prepare() {
    if (Status ready = reset(); !ready || !decodes_in_steps()) return ready;
    const std::span<std::byte> gemm = bindings_.gemm_workspace;
    const c::DeviceProblem blas =
        c::Blas::open(device_.launch(state()), gemm.data(), gemm.size(), blas_);
    if (!blas.is_none()) return error_of(plan_.devices.front().facts.name, blas, ErrorKind::no_fit);
    device_.begin_capture();
    launch_decode(true);
    const c::DeviceProblem problem = device_.end_capture(decode_graph_);
    if (problem.is_none()) return wait();
    return error_of(plan_.devices.front().facts.name, problem, ErrorKind::no_fit);
}

Status GpuBackend::rehearse() {
    const std::uint64_t n_tokens = std::min(plan_.grant.chunk_tokens, plan_.grant.context_tokens);
    const std::vector<TokenId> tokens(n_tokens, 0);
    if (const Result<TokenId> chunk = feed_greedy(tokens); !chunk) return chunk.error();
    if (Status ready = reset(); !ready) return ready;
    if (const Result<TokenId> step = feed_greedy(std::span(tokens).first(1)); !step)
        return step.error();
    if (has_draft_head() && n_tokens > 2) {
        const LogitsSink ignore = [](std::uint64_t, std::span<const float>) { return ok_status(); };
        if (Status done = feed_all(std::span(tokens).first(2), ignore, ignore); !done) return done;
    }
    return reset();
}

void GpuBackend::check_room(std::size_t n_tokens) const {
    PLIMSOLL_CHECK(n_tokens != 0, "a call feeds at least one token");
    PLIMSOLL_CHECK(n_tokens <= plan_.grant.chunk_tokens,
                   fmt::format("{} tokens are fed at once and {} are planned", n_tokens,
                               plan_.grant.chunk_tokens));
    PLIMSOLL_CHECK(position_ + n_tokens <= plan_.grant.context_tokens,
                   fmt::format("{} tokens are fed behind {} and the context has {}", n_tokens,
                               position_, plan_.grant.context_tokens));
}

/// Ids to the device, then everything before the head.
GpuStep GpuBackend::begin_chunk(std::span<const TokenId> tokens) {
    static_assert(sizeof(TokenId) == sizeof(std::int32_t));
    std::copy(tokens.begin(), tokens.end(), host_ids());
    GpuStep step = step_of(static_cast<std::uint32_t>(tokens.size()), false);
    device_.copy_to_device(shared_buffer<std::byte>(BufferRole::token_ids), host_ids(),
                           tokens.size() * sizeof(TokenId));
    c::set_step(position_, 0, step.launch);
    if (has_draft_head())
        device_.copy_within_device(streams() - streams_row(), bindings_.draft_head.front().hidden,
                                   streams_row() * sizeof(float));
    run_phase(PhaseKind::embed, step);
    run_chunk_layers(step);
    keep_hidden(step.n_tokens);
    position_ += tokens.size();
    token_on_device_.reset();
    return step;
}

/// Logits of rows [first, first + count) of a step, count <= logits_rows, on the device.
void GpuBackend::compute_head(PhaseKind kind, const GpuStep& step, std::uint32_t first,
                              std::uint32_t count) {
    GpuStep rows = step;
    rows.streams += first * streams_row();
    rows.n_tokens = count;
    rows.head = kind == PhaseKind::head ? &bindings_.head : &bindings_.draft_head.front().head;
    run_phase(kind, rows);
}

/// One token by its graph. What it chose is then the device's next token.
void GpuBackend::decode(TokenId token) {
    if (token_on_device_ != token) c::set_step(position_, token, device_.launch(state()));
    if (op_times_ == nullptr)
        device_.launch(decode_graph_);
    else
        launch_decode(false);
    position_ += 1;
    token_on_device_.reset();
}

/// The logits of the last of the tokens, on the device.
void GpuBackend::compute_logits(std::span<const TokenId> tokens) {
    check_room(tokens.size());
    if (tokens.size() == 1 && decodes_in_steps()) {
        decode(tokens.front());
        return;
    }
    const GpuStep step = begin_chunk(tokens);
    compute_head(PhaseKind::head, step, step.n_tokens - 1, 1);
}

Result<std::span<const float>> GpuBackend::logits_to_host(std::uint32_t n_rows) {
    const std::uint64_t n = std::uint64_t{n_rows} * model_.hyper.vocab_size;
    device_.copy_to_host(host_logits(), bindings_.logits, n * sizeof(float));
    if (Status done = wait(); !done) return done.error();
    return std::span<const float>(host_logits(), n);
}

Result<std::span<const float>> GpuBackend::feed(std::span<const TokenId> tokens) {
    compute_logits(tokens);
    return logits_to_host(1);
}

Result<TokenId> GpuBackend::feed_greedy(std::span<const TokenId> tokens) {
    const bool is_decode = tokens.size() == 1 && decodes_in_steps();
    compute_logits(tokens);
    auto* next = is_decode
                     ? shared_buffer<std::int32_t>(BufferRole::next_token, PhaseKind::decode_head)
                     : shared_buffer<std::int32_t>(BufferRole::token_ids);
    if (!is_decode)
        c::argmax({bindings_.logits, next, 1, model_.hyper.vocab_size}, device_.launch(state()));
    device_.copy_to_host(host_ids(), next, sizeof(TokenId));
    if (Status done = wait(); !done) return done.error();
    const TokenId token = *host_ids();
    if (token < 0) return Error{ErrorKind::internal, "the logits are not finite"};
    if (is_decode) token_on_device_ = token;
    return token;
}

Status GpuBackend::all_heads(PhaseKind kind, const GpuStep& step, const LogitsSink& sink) {
    const std::uint64_t vocab = model_.hyper.vocab_size;
    for (std::uint32_t row = 0; row < step.n_tokens; row += bindings_.logits_rows) {
        const std::uint32_t count = std::min(bindings_.logits_rows, step.n_tokens - row);
        compute_head(kind, step, row, count);
        const Result<std::span<const float>> logits = logits_to_host(count);
        if (!logits) return logits.error();
        for (std::uint32_t index = 0; index < count; ++index)
            if (Status taken =
                    sink(step.first_position + row + index, logits->subspan(index * vocab, vocab));
                !taken)
                return taken;
    }
    return ok_status();
}

/// The draft head over every position whose next token is in this call. Before the first token of
/// all there is none, so then row 0 pairs the call's first two tokens.
Status GpuBackend::run_draft_head(const GpuStep& main, const LogitsSink& sink) {
    GpuStep step = main;
    const bool starts = main.first_position == 0;
    step.first_position = starts ? 0 : main.first_position - 1;
    step.n_tokens = starts ? main.n_tokens - 1 : main.n_tokens;
    step.token_ids = starts ? main.token_ids + 1 : main.token_ids;
    step.streams = starts ? main.streams : main.streams - streams_row();
    if (step.n_tokens == 0) return ok_status();
    c::set_step(step.first_position, 0, step.launch);
    run_phase(PhaseKind::mtp_input, step);
    step.streams = step.floats(BufferRole::mtp_streams);
    step.layer = &bindings_.draft_head.front().layer;
    run_phase(PhaseKind::mtp_layer, step);
    step.layer = nullptr;
    return all_heads(PhaseKind::mtp_head, step, sink);
}

Status GpuBackend::feed_all(std::span<const TokenId> tokens, const LogitsSink& main,
                            const LogitsSink& draft) {
    PLIMSOLL_CHECK(!draft || has_draft_head(), "the plan has no draft head");
    check_room(tokens.size());
    if (tokens.size() == 1 && decodes_in_steps() && !draft) {
        decode(tokens.front());
        const Result<std::span<const float>> logits = logits_to_host(1);
        return logits ? main(position_ - 1, *logits) : Status(logits.error());
    }
    const GpuStep step = begin_chunk(tokens);
    if (Status done = all_heads(PhaseKind::head, step, main); !done) return done;
    return draft ? run_draft_head(step, draft) : ok_status();
}

Result<std::vector<OpTime>> GpuBackend::feed_timed(std::span<const TokenId> tokens) {
    std::vector<OpTime> times;
    op_times_ = &times;
    compute_logits(tokens);
    op_times_ = nullptr;
    if (Status done = wait(); !done) return done.error();
    return times;
}

Status GpuBackend::reset() {
    const Hyperparameters& hyper = model_.hyper;
    position_ = 0;
    token_on_device_.reset();
    const c::Launch launch = device_.launch(state());
    for (const LayerBinding& layer : bindings_.layers) {
        const std::uint32_t lanes = kernels::compressor_lanes(layer.ratio);
        if (layer.cache.state != nullptr)
            c::compressor_reset(layer.cache.state, layer.ratio, lanes * hyper.head_dim, launch);
        if (layer.cache.index_state != nullptr)
            c::compressor_reset(layer.cache.index_state, layer.ratio,
                                lanes * hyper.indexer_head_dim, launch);
    }
    return wait();
}

std::string GpuBackend::memory_report() const {
    return gpu_memory_report(plan_.devices.front(), device_memory_, host_memory_,
                             {.total_bytes = device_.total_bytes(),
                              .free_bytes = device_.free_bytes(),
                              .graph_nodes = decode_graph_.n_nodes()});
}

}  // namespace

Result<std::unique_ptr<EngineBackend>> make_gpu_backend(const EngineSource& source) {
    const Plan& plan = *source.plan;
    const DevicePlan& place = plan.devices.front();
    c::Device device;
    if (const Status opened = open_device(place.facts, device); !opened) return opened.error();
    if (const Status free = check_free_memory(place, device.free_bytes()); !free)
        return free.error();
    Result<ArenaMemory> device_memory = allocate_device_arena(device, place.arena);
    if (!device_memory) return device_memory.error();
    Result<ArenaMemory> host_memory = allocate_pinned_arena(device, plan.host.arena);
    if (!host_memory) return host_memory.error();
    Schedule schedule = schedule_of(plan, 0, *source.model, source.mtp);
    Result<BoundModel> bound =
        bind_model(plan, schedule, *source.model, source.mtp, *device_memory, *host_memory);
    if (!bound) return bound.error();
    device_memory->seal();
    host_memory->seal();
    const LoadProgress silent = [](std::uint64_t, std::uint64_t) {};
    const Result<GpuLoadFigures> loaded = load_to_gpu(device,
                                                      {.loads = bound->loads,
                                                       .fp16_fills = bound->fp16_fills,
                                                       .ring = bound->bindings.staging_ring,
                                                       .scratch = bound->bindings.workspace,
                                                       .n_threads = source.n_threads,
                                                       .synthetic_seed = source.synthetic_seed},
                                                      source.progress ? source.progress : silent);
    if (!loaded) return loaded.error();
    if (source.note) source.note("loaded " + loaded->text());
    if (source.note && !loaded->fallback.empty()) source.note("loading: " + loaded->fallback);
    device.fill_zero(bound->bindings.workspace.data(), bound->bindings.workspace.size());
    auto backend = std::make_unique<GpuBackend>(source, std::move(device),
                                                std::move(*device_memory), std::move(*host_memory),
                                                std::move(schedule), std::move(bound->bindings));
    if (Status ready = backend->prepare(); !ready) return ready.error();
    if (Status ready = backend->rehearse(); !ready) return ready.error();
    return std::unique_ptr<EngineBackend>(std::move(backend));
}

}  // namespace plimsoll
