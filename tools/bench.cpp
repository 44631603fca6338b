#include "tools/bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "planner/units.hpp"
#include "runtime/random.hpp"
#include "tools/bench_report.hpp"
#include "tools/bench_steps.hpp"
#include "tools/environment.hpp"
#include "tools/interrupt.hpp"
#include "tools/progress.hpp"
#include "tools/run_launch.hpp"
#include "tools/run_plan.hpp"
#include "tools/text_file.hpp"
#include "tools/whole_number.hpp"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

/// Tokens fed before the first frontier and forgotten: a processor's and a GPU's clocks rise
/// meanwhile.
constexpr std::uint64_t kWarmUpTokens = 512;
constexpr std::uint64_t kPromptSeed = 1;
constexpr std::uint32_t kThreadsMax = 1024;

struct BenchCommand {
    PlanningOptions planning;
    BenchWalk walk;
    std::optional<std::uint64_t> ctx_max_tokens;
    std::optional<std::uint64_t> synthetic_seed;
    std::optional<std::uint32_t> threads;
    bool per_op = false;
    bool memory_report = false;
};

void say(const std::string& text) { fmt::print(stderr, "{}\n", text); }

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Walks an engine through the frontiers.
class Walker {
public:
    Walker(const Launch& launch, Engine& engine, const InterruptFlag& interrupt)
        : launch_(launch), engine_(engine), interrupt_(interrupt), random_(kPromptSeed) {}

    /// Feeds up to the frontier and generates there.
    Result<BenchRow> run(std::uint64_t frontier, std::uint64_t gen_tokens);
    Status warm_up();
    /// Op times of one more chunk and one more token, as tables.
    Result<std::string> op_tables(const Schedule& schedule);

private:
    const Launch& launch_;
    Engine& engine_;
    const InterruptFlag& interrupt_;
    Random random_;
    TokenId next_ = 0;

    std::vector<TokenId> random_tokens(std::uint64_t count) {
        std::vector<TokenId> tokens(count);
        const std::uint64_t vocab = launch_.model.hyper.vocab_size;
        for (TokenId& token : tokens) token = static_cast<TokenId>(random_.next() % vocab);
        return tokens;
    }
    Status feed_to(std::uint64_t position);
    Status check_interrupt() const {
        if (!interrupt_.raised()) return ok_status();
        return Error{ErrorKind::interrupted, "interrupted"};
    }
};

Status Walker::feed_to(std::uint64_t position) {
    while (engine_.position() < position) {
        if (Status go_on = check_interrupt(); !go_on) return go_on;
        const std::vector<TokenId> tokens =
            random_tokens(std::min(engine_.chunk_tokens(), position - engine_.position()));
        const Result<TokenId> next = engine_.feed_greedy(tokens);
        if (!next) return next.error();
        next_ = *next;
    }
    return ok_status();
}

Status Walker::warm_up() {
    const std::uint64_t tokens = std::min(kWarmUpTokens, launch_.plan.grant.context_tokens / 2);
    if (Status fed = feed_to(tokens); !fed) return fed;
    if (const Result<TokenId> next = engine_.feed_greedy({&next_, 1}); !next) return next.error();
    return engine_.reset();
}

Result<BenchRow> Walker::run(std::uint64_t frontier, std::uint64_t gen_tokens) {
    BenchRow row{.ctx_tokens = frontier};
    row.prefill_tokens = frontier - engine_.position();
    Clock::time_point start = Clock::now();
    if (Status fed = feed_to(frontier); !fed) return fed.error();
    row.prefill_seconds = seconds_since(start);
    row.kvcache_bytes = cache_bytes_in_use(launch_.model, launch_.plan.grant, engine_.position());
    start = Clock::now();
    for (; row.gen_tokens < gen_tokens; ++row.gen_tokens) {
        if (Status go_on = check_interrupt(); !go_on) return go_on.error();
        const Result<TokenId> next = engine_.feed_greedy({&next_, 1});
        if (!next) return next.error();
        next_ = *next;
    }
    row.gen_seconds = seconds_since(start);
    return row;
}

Result<std::string> Walker::op_tables(const Schedule& schedule) {
    const Plan& plan = launch_.plan;
    const DeviceFacts& device = plan.devices.front().facts;
    // The walk's last frontier and what it generated fill the context: a chunk is timed from the
    // start.
    if (Status ready = engine_.reset(); !ready) return ready.error();
    const std::uint64_t chunk = std::min(plan.grant.chunk_tokens, plan.grant.context_tokens - 1);
    std::string text;
    for (const std::uint64_t tokens : {chunk, std::uint64_t{1}}) {
        const PricedStep step{
            schedule, launch_.model,     plan.grant.kv_format, plan.grant.chunk_tokens,
            tokens,   engine_.position()};
        const Result<std::vector<OpTime>> times = engine_.feed_timed(random_tokens(tokens));
        if (!times) return times.error();
        text += op_table_text(
            fmt::format("\n{} token{} at {}, each op waited for", format_count(tokens),
                        tokens == 1 ? "" : "s", format_count(step.position)),
            device, step, *times);
    }
    return text;
}

Result<Engine> load(const BenchCommand& command, const Launch& launch) {
    const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    std::optional<ProgressLine> line;
    return Engine::create({.plan = &launch.plan,
                           .model = &launch.model,
                           .mtp = launch.mtp_or_null(),
                           .n_threads = command.threads.value_or(cores),
                           .progress =
                               [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                                   if (!line)
                                       line.emplace(stderr, inspect_terminal(STDERR_FILENO),
                                                    "loading", ProgressUnit::bytes, total_bytes);
                                   line->update(done_bytes);
                               },
                           .note = say,
                           .synthetic_seed = command.synthetic_seed});
}

/// A model with weights, or one to make weights for.
Status check_source(const BenchCommand& command, const Launch& launch) {
    for (const Model* model : {&launch.model, launch.mtp_or_null()}) {
        if (model == nullptr) continue;
        if (command.synthetic_seed && !model->path.empty())
            return Error{ErrorKind::usage,
                         fmt::format("{} has weights: --synthetic is for an inventory or a shape",
                                     model->path)};
        if (!command.synthetic_seed && model->path.empty())
            return Error{ErrorKind::usage,
                         fmt::format("{} is an inventory without weights: name a GGUF file, or "
                                     "make weights with --synthetic",
                                     model->name)};
    }
    return ok_status();
}

Status walk(const BenchCommand& command, const Launch& launch,
            const std::vector<std::uint64_t>& frontiers) {
    if (const Status there = check_memory(launch.plan, available_memory_bytes()); !there)
        return there;
    Result<Engine> engine = load(command, launch);
    if (!engine) return engine.error();
    InterruptFlag interrupt;
    Walker walker(launch, *engine, interrupt);
    if (Status ready = walker.warm_up(); !ready) return ready;
    fmt::print("{}\n", kBenchHeader);
    std::vector<BenchRow> rows;
    for (const std::uint64_t frontier : frontiers) {
        const Result<BenchRow> row = walker.run(frontier, command.walk.gen_tokens);
        if (!row) return row.error();
        fmt::print("{}\n", csv_row(*row));
        std::fflush(stdout);
        rows.push_back(*row);
    }
    const Schedule schedule = schedule_of(launch.plan, 0, launch.model, launch.mtp_or_null());
    fmt::print(stderr, "\n{}", prediction_table(launch.plan, launch.model, schedule, rows));
    if (command.per_op) {
        const Result<std::string> tables = walker.op_tables(schedule);
        if (!tables) return tables.error();
        fmt::print(stderr, "{}", *tables);
    }
    if (command.memory_report) fmt::print(stderr, "\n{}", engine->memory_report());
    return ok_status();
}

Status bench(BenchCommand command) {
    command.walk.ctx_max_tokens = command.ctx_max_tokens.value_or(command.walk.ctx_start_tokens);
    const Result<std::vector<std::uint64_t>> frontiers = frontiers_of(command.walk);
    if (!frontiers) return frontiers.error();
    const std::uint64_t needed_tokens = context_tokens_of(command.walk);
    if (!command.planning.context && !command.planning.plan_path)
        command.planning.context = fmt::format("{}", std::max<std::uint64_t>(needed_tokens, 4'096));
    const Result<Launch> launch = prepare_launch(command.planning, false);
    if (!launch) return launch.error();
    for (const std::string& line : plan_brief(launch->plan)) say(line);
    for (const std::string& note : launch->notes) say(note);
    if (command.planning.output_path) {
        const Status saved =
            write_text_file(*command.planning.output_path, plan_to_yaml(launch->plan));
        if (!saved) return saved;
    }
    if (const Status runnable = check_runnable(launch->plan, command.planning.strict); !runnable)
        return runnable;
    if (needed_tokens > launch->plan.grant.context_tokens)
        return Error{
            ErrorKind::usage,
            fmt::format("--ctx-max and --gen-tokens need a context of {} and the plan has {}",
                        format_count(needed_tokens),
                        format_count(launch->plan.grant.context_tokens))};
    if (const Status source = check_source(command, *launch); !source) return source;
    return walk(command, *launch, *frontiers);
}

void add_walk_options(CLI::App& command, BenchCommand& options) {
    constexpr const char* kGroup = "Walk";
    constexpr std::uint64_t kTokensMax = 1ull << 32;
    auto* start = command.add_option("--ctx-start", options.walk.ctx_start_tokens,
                                     "First context to generate at (default 2048)");
    auto* max = command.add_option("--ctx-max", options.ctx_max_tokens,
                                   "Last context to generate at (default: the first)");
    auto* mul = command.add_option("--step-mul", options.walk.step_mul,
                                   "Each context is so many times the one before (default 2)");
    auto* incr = command.add_option("--step-incr", options.walk.step_incr_tokens,
                                    "Each context is so many tokens behind the one before");
    auto* gen = command.add_option("--gen-tokens", options.walk.gen_tokens,
                                   "Tokens to generate at each (default 128)");
    for (auto* option : {start, max, incr}) option->check(whole_number(1, kTokensMax));
    gen->check(whole_number(0, kTokensMax));
    for (auto* option : {start, max, mul, incr, gen}) option->group(kGroup);
}

}  // namespace

void add_bench_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<BenchCommand>();
    add_planning_options(command, options->planning);
    add_walk_options(command, *options);
    command
        .add_flag_function(
            "--synthetic{1}",
            [options](std::int64_t seed) {
                options->synthetic_seed = static_cast<std::uint64_t>(seed);
            },
            "Make the weights of an inventory in place of reading a file: --synthetic or "
            "--synthetic=SEED")
        ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
    command
        .add_option("--threads", options->threads, "Threads to compute with (default: all cores)")
        ->check(whole_number(1, kThreadsMax));
    command.add_flag("--per-op", options->per_op, "Time of each kind of op beside its roofline");
    command.add_flag("--memory-report", options->memory_report,
                     "Planned and measured memory of each tier, at the end");
    command.footer(
        "CSV on the standard output, everything else on the other one. The prompt is made of "
        "random "
        "tokens; each context is reached from the one before.\nExample: plimsoll bench flash-q2 "
        "--synthetic --ctx-start 2048 --ctx-max 28672 --per-op");
    action = [options] { return bench(*options); };
}

}  // namespace plimsoll
