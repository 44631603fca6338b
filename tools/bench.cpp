#include "tools/bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "planner/units.hpp"
#include "tools/bench_report.hpp"
#include "tools/bench_steps.hpp"
#include "tools/bench_walk.hpp"
#include "tools/environment.hpp"
#include "tools/run_engine.hpp"
#include "tools/run_plan.hpp"
#include "tools/text_file.hpp"
#include "tools/whole_number.hpp"

namespace plimsoll {
namespace {

/// Before the first context: enough for clocks to rise, little to wait for on a processor.
constexpr std::uint64_t kWarmUpPromptTokens = 512;
constexpr std::uint64_t kWarmUpGenTokens = 16;

/// What --per-op times behind the walk where the context is ours to choose: a chunk as large as
/// plans grant by default. And the least, a chunk of one token and a token.
constexpr std::uint64_t kPerOpTokens = 4'096 + 1;
constexpr std::uint64_t kPerOpTokensMin = 2;

struct BenchCommand {
    PlanningOptions planning;
    BenchWalk walk;
    std::optional<std::uint64_t> ctx_max_tokens;
    std::optional<std::uint64_t> synthetic_seed;
    std::optional<std::uint32_t> threads;
    bool per_op = false;
    bool memory_report = false;

    [[nodiscard]] std::uint64_t context_tokens_min() const {
        return walked_tokens(walk) + (per_op ? kPerOpTokensMin : 0);
    }
};

void say(const std::string& text) { fmt::print(stderr, "{}\n", text); }

/// A model with weights, or one to make weights for.
Status check_source(const BenchCommand& command, const Launch& launch) {
    for (const Model* model : {&launch.model, launch.mtp_or_null()}) {
        if (model == nullptr) continue;
        if (command.synthetic_seed && !model->path.empty())
            return Error{ErrorKind::usage,
                         fmt::format("{} has weights: --synthetic is for the name of a shape, such "
                                     "as flash-q2",
                                     model->path)};
        if (!command.synthetic_seed && model->path.empty())
            return Error{ErrorKind::usage,
                         fmt::format("{} is an inventory without weights: name a GGUF file, or "
                                     "make weights with --synthetic",
                                     model->name)};
        if (command.synthetic_seed && model->hyper.n_hash_layers > 0 &&
            !is_power_of_two(model->hyper.n_experts))
            return Error{ErrorKind::usage,
                         fmt::format("{}: --synthetic needs a power of two of experts, not {}",
                                     model->name, model->hyper.n_experts)};
    }
    return ok_status();
}

Status check_context(const BenchCommand& command, const Grant& grant) {
    const std::uint64_t needed_tokens = command.context_tokens_min();
    if (needed_tokens <= grant.context_tokens) return ok_status();
    return Error{
        ErrorKind::usage,
        fmt::format("--ctx-max {}{} and --gen-tokens {} need a context of {}, and the plan has {}",
                    format_count(command.walk.ctx_max_tokens), command.per_op ? ", --per-op" : "",
                    format_count(command.walk.gen_tokens), format_count(needed_tokens),
                    format_count(grant.context_tokens))};
}

/// Contexts one by one, a CSV row each as soon as it is measured. What was measured before an error
/// stays in `rows`.
Status measure_rows(const std::vector<std::uint64_t>& contexts, const BenchCommand& command,
                    const Launch& launch, ContextWalk& walk, std::vector<BenchRow>& rows) {
    const Status warm = walk.warm_up(std::min(kWarmUpPromptTokens, contexts.front()),
                                     std::min(kWarmUpGenTokens, command.walk.gen_tokens));
    if (!warm) return warm;
    fmt::print("{}\n", kBenchHeader);
    std::fflush(stdout);
    for (const std::uint64_t context_tokens : contexts) {
        Result<BenchRow> row = walk.measure(context_tokens, command.walk.gen_tokens);
        if (!row) return row.error();
        row->kvcache_bytes = cache_bytes_in_use(launch.model, launch.plan.grant, context_tokens);
        fmt::print("{}\n", csv_row(*row));
        std::fflush(stdout);
        rows.push_back(*row);
    }
    return ok_status();
}

Status report_rates(const Launch& launch, const std::vector<BenchRow>& rows) {
    if (rows.empty()) return ok_status();
    std::vector<StepPair> steps;
    for (const BenchRow& row : rows) steps.push_back(steps_of(row, launch.plan.grant.chunk_tokens));
    const Result<std::vector<StepPairCost>> costs =
        costs_of_plan(launch.plan, launch.model, launch.mtp_or_null(), steps);
    if (!costs) return costs.error();
    const DeviceFacts& device = launch.plan.devices.front().facts;
    fmt::print(stderr, "\ntokens/s\n{}{}", rate_table(device, rows, *costs),
               share_lines(device, rows, *costs));
    return ok_status();
}

/// Behind the walk: a token, and as much of a chunk as the context has room for.
Status report_ops(const Launch& launch, Engine& engine, ContextWalk& walk) {
    const Grant& grant = launch.plan.grant;
    const Schedule schedule = schedule_of(launch.plan, 0, launch.model, launch.mtp_or_null());
    const std::uint64_t room_tokens = grant.context_tokens - engine.position() - 1;
    for (const std::uint64_t tokens :
         {std::uint64_t{1}, std::min(grant.chunk_tokens, room_tokens)}) {
        const PricedStep step{.schedule = schedule,
                              .model = launch.model,
                              .kv_format = grant.kv_format,
                              .planned_tokens = std::max(grant.chunk_tokens, 1 + grant.drafts),
                              .tokens = tokens,
                              .position = engine.position()};
        const Result<std::vector<OpTime>> times = engine.feed_timed(walk.random_tokens(tokens));
        if (!times) return times.error();
        fmt::print(stderr, "\n{}",
                   op_time_table(
                       fmt::format("{} token{} behind {}, each op waited for", format_count(tokens),
                                   tokens == 1 ? "" : "s", format_count(step.position)),
                       launch.plan.devices.front().facts, step, *times));
    }
    return ok_status();
}

Status carry_out(const BenchCommand& command, const Launch& launch,
                 const std::vector<std::uint64_t>& contexts) {
    if (const Status there = check_memory(launch.plan, available_memory_bytes()); !there)
        return there;
    const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    Result<Engine> engine = load_engine(
        launch,
        {.threads = command.threads.value_or(cores), .synthetic_seed = command.synthetic_seed},
        stderr, inspect_terminal(STDERR_FILENO));
    if (!engine) return engine.error();
    InterruptFlag interrupt;
    ContextWalk walk(token_model_of(*engine), launch.model.hyper.vocab_size, interrupt);
    std::vector<BenchRow> rows;
    const Status walked = measure_rows(contexts, command, launch, walk, rows);
    if (const Status told = report_rates(launch, rows); !told) return told;
    if (!walked) return walked;
    if (command.per_op)
        if (const Status told = report_ops(launch, *engine, walk); !told) return told;
    if (command.memory_report) fmt::print(stderr, "\n{}", engine->memory_report());
    return ok_status();
}

Status bench(BenchCommand command) {
    if (command.planning.output_path == "-")
        return Error{ErrorKind::usage, "-o - would put the plan among the CSV: name a file"};
    command.walk.ctx_max_tokens = command.ctx_max_tokens.value_or(command.walk.ctx_start_tokens);
    const Result<std::vector<std::uint64_t>> contexts = contexts_of(command.walk);
    if (!contexts) return contexts.error();
    if (!command.planning.context && !command.planning.plan_path)
        command.planning.context =
            fmt::format("{}", walked_tokens(command.walk) + (command.per_op ? kPerOpTokens : 0));
    const Result<Launch> launch = prepare_launch(command.planning, false);
    if (!launch) return launch.error();
    for (const std::string& note : launch->notes) say(note);
    if (!launch->plan.refusal)
        for (const std::string& line : plan_brief(launch->plan)) say(line);
    if (command.planning.output_path) {
        const Status saved =
            write_text_file(*command.planning.output_path, plan_to_yaml(launch->plan));
        if (!saved) return saved;
    }
    for (const Status& checked :
         {check_runnable(launch->plan, command.planning.strict), check_source(command, *launch),
          check_context(command, launch->plan.grant)})
        if (!checked) return checked;
    return carry_out(command, *launch, *contexts);
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
                                   "Tokens to generate at each, which count as context (default "
                                   "128)");
    for (auto* option : {start, max, incr}) option->check(whole_number(1, kTokensMax));
    gen->check(whole_number(0, kTokensMax));
    for (auto* option : {start, max, incr, gen}) option->option_text("N");
    mul->option_text("X");
    for (auto* option : {start, max, mul, incr, gen}) option->group(kGroup);
}

}  // namespace

void add_bench_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<BenchCommand>();
    add_planning_options(command, options->planning);
    add_walk_options(command, *options);
    auto* synthetic = command.add_flag("--synthetic{1}", options->synthetic_seed,
                                       "Make the weights of a shape in place of reading a file: "
                                       "--synthetic or --synthetic=SEED");
    synthetic->check(whole_number(0));
    command
        .add_option("--threads", options->threads, "Threads to compute with (default: all cores)")
        ->check(whole_number(1, kThreadsMax));
    command.add_flag("--per-op", options->per_op,
                     "Behind the walk, time each op of a token and of a chunk");
    command.add_flag("--memory-report", options->memory_report,
                     "Planned and measured memory of each tier, at the end");
    command.footer(
        "CSV on the standard output, everything else on the standard error. Each context is "
        "reached "
        "from the one before, by random tokens fed in chunks; --ctx is what the walk needs unless "
        "given. A warm-up of up to 512 tokens and 16 more comes first and is forgotten. Ctrl+C "
        "ends "
        "with what was measured and status 130.\nExample: plimsoll bench flash-q2 --synthetic "
        "--ctx-max 28672 --per-op");
    action = [options, synthetic] {
        // A flag that may have a value sets it where it is absent, too.
        if (synthetic->count() == 0) options->synthetic_seed.reset();
        return bench(*options);
    };
}

}  // namespace plimsoll
