#include "tools/run_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/progress.hpp"
#include "tools/row_file.hpp"

namespace plimsoll {
namespace {

/// A file of rows where one is asked for.
Result<std::optional<RowFile>> open_rows(const std::optional<std::string>& path) {
    if (!path) return std::optional<RowFile>();
    Result<RowFile> file = RowFile::create(*path);
    if (!file) return file.error();
    return std::optional<RowFile>(std::move(*file));
}

LogitsSink into(std::optional<RowFile>& file) {
    return [&file](std::uint64_t, std::span<const float> logits) {
        return file ? file->write(logits) : ok_status();
    };
}

}  // namespace

Result<Engine> load_engine(const Launch& launch, const LoadOptions& options,
                           std::FILE* progress_stream, const Terminal& terminal) {
    // The total is known once the engine has found everything there is to load.
    std::optional<ProgressLine> line;
    return Engine::create({.plan = &launch.plan,
                           .model = &launch.model,
                           .mtp = launch.mtp_or_null(),
                           .n_threads = options.threads,
                           .progress =
                               [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                                   if (!line)
                                       line.emplace(progress_stream, terminal, "loading",
                                                    ProgressUnit::bytes, total_bytes);
                                   line->update(done_bytes);
                               },
                           .note =
                               [&](const std::string& text) {
                                   line.reset();
                                   fmt::print(progress_stream, "{}\n", text);
                               },
                           .synthetic_seed = options.synthetic_seed});
}

struct LoadedModel::Parts {
    Engine engine;
    bool has_traffic = false;  // whether experts are anywhere but on the device
    ExpertCounts told;         // what `expert_traffic` reported before
};

LoadedModel::LoadedModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
LoadedModel::~LoadedModel() = default;
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;

Result<LoadedModel> LoadedModel::load(const Launch& launch, std::uint32_t threads,
                                      std::FILE* progress_stream, const Terminal& terminal) {
    Result<Engine> engine = load_engine(launch, {.threads = threads}, progress_stream, terminal);
    if (!engine) return engine.error();
    auto parts = std::make_unique<Parts>(Parts{.engine = std::move(*engine)});
    parts->has_traffic = launch.plan.experts_on_devices() < launch.plan.experts_total;
    return LoadedModel(std::move(parts));
}

TokenModel LoadedModel::token_model() { return token_model_of(parts_->engine); }

TokenModel token_model_of(Engine& engine) {
    return {.chunk_tokens = engine.chunk_tokens(),
            .reset = [&engine] { return engine.reset(); },
            .feed = [&engine](std::span<const TokenId> tokens) -> Result<std::span<const float>> {
                return engine.feed(tokens);
            },
            .feed_greedy =
                [&engine](std::span<const TokenId> tokens) { return engine.feed_greedy(tokens); }};
}

Status LoadedModel::write_logits(std::span<const TokenId> tokens, const RunOptions& options) {
    Engine& engine = parts_->engine;
    Result<std::optional<RowFile>> main = open_rows(options.logits_path);
    if (!main) return main.error();
    Result<std::optional<RowFile>> draft = open_rows(options.mtp_logits_path);
    if (!draft) return draft.error();
    if (Status ready = engine.reset(); !ready) return ready;
    while (!tokens.empty()) {
        const std::size_t count = std::min<std::size_t>(engine.chunk_tokens(), tokens.size());
        const Status fed =
            engine.feed_all(tokens.first(count), into(*main), *draft ? into(*draft) : LogitsSink());
        if (!fed) return fed;
        tokens = tokens.subspan(count);
    }
    for (std::optional<RowFile>* file : {&*main, &*draft}) {
        if (!*file) continue;
        if (Status closed = (*file)->close(); !closed) return closed;
    }
    return engine.reset();
}

std::optional<ExpertTraffic> LoadedModel::expert_traffic() {
    if (!parts_->has_traffic) return std::nullopt;
    const ExpertCounts now = parts_->engine.expert_counts();
    const ExpertCounts before = std::exchange(parts_->told, now);
    return ExpertTraffic{.hits = now.hits - before.hits,
                         .misses = now.misses - before.misses,
                         .copied_bytes = now.copied_bytes - before.copied_bytes};
}

std::string LoadedModel::memory_report() const { return parts_->engine.memory_report(); }

}  // namespace plimsoll
