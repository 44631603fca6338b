#include "tools/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "planner/gguf.hpp"
#include "planner/units.hpp"
#include "runtime/token_file.hpp"
#include "runtime/tokenizer_file.hpp"
#include "tools/environment.hpp"
#include "tools/plan_view.hpp"
#include "tools/run_chat.hpp"
#include "tools/run_engine.hpp"
#include "tools/run_launch.hpp"
#include "tools/run_options.hpp"
#include "tools/run_plan.hpp"
#include "tools/run_prompt.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

struct RunCommand {
    PlanningOptions planning;
    RunOptions run;
};

/// What is fed first: text becomes tokens before anything is loaded, so that a prompt which is too
/// long costs no loading.
struct Prompt {
    PromptSource source = PromptSource::chat;
    ThinkMode think = ThinkMode::off;
    std::optional<Tokenizer> tokenizer;  // none where ids are fed and no text comes out
    std::vector<TokenId> tokens;         // empty for a conversation
};

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

Status check_output_path(const PlanningOptions& options) {
    if (options.output_path != "-") return ok_status();
    return Error{ErrorKind::usage, "-o - would put the plan among the generated text: name a file"};
}

/// The plan on stderr, in brief or whole.
void show_plan(const Launch& launch, bool verbose) {
    if (verbose) {
        const Terminal terminal = inspect_terminal(STDERR_FILENO);
        const View view{.columns = terminal.columns,
                        .colour = terminal.colour,
                        .unicode = standard_view().unicode};
        fmt::print(stderr, "{}", plan_text(launch.plan, launch.alternatives, view));
    } else if (!launch.plan.refusal) {
        for (const std::string& line : plan_brief(launch.plan)) say(line);
    }
    for (const std::string& note : launch.notes) say(note);
}

/// Things that are accepted and yet do not do all that one might expect.
void announce_limits(const Launch& launch, const RunOptions& options) {
    const Grant& grant = launch.plan.grant;
    if (grant.mtp && options.generates()) {
        say("drafts are not used for generation yet: the draft head is loaded and waits");
    }
    if (grant.sessions > 1) {
        say(fmt::format("a run uses 1 of the {} sessions planned", format_count(grant.sessions)));
    }
}

Status check_launch(const Launch& launch, const RunCommand& command) {
    if (const Status runnable = check_runnable(launch.plan, command.planning.strict); !runnable) {
        return runnable;
    }
    if (launch.model.path.empty()) {
        return Error{ErrorKind::usage,
                     fmt::format("{} is an inventory without weights: to run, name a GGUF file",
                                 launch.model.name)};
    }
    if (launch.mtp && launch.mtp->path.empty()) {
        return Error{ErrorKind::usage,
                     fmt::format("{} is an inventory without weights: to run, name a GGUF file "
                                 "with --mtp",
                                 launch.mtp->name)};
    }
    if (command.run.mtp_logits_path && !launch.mtp) {
        return Error{
            ErrorKind::usage,
            "--mtp-logits-out needs a plan with a draft head: name one with --mtp and keep "
            "it with --require mtp"};
    }
    return ok_status();
}

Result<Tokenizer> tokenizer_of(const Model& model) {
    const Result<GgufFile> file = read_gguf(model.path);
    if (!file) return file.error();
    Result<Tokenizer> tokenizer = load_tokenizer(*file);
    if (!tokenizer) return tokenizer;
    if (tokenizer->vocab_size() != model.hyper.vocab_size) {
        return Error{ErrorKind::bad_file,
                     fmt::format("{}: the tokenizer has {} tokens and the model {}", model.path,
                                 tokenizer->vocab_size(), model.hyper.vocab_size)};
    }
    for (const std::string& note : tokenizer->notes()) say(note);
    return tokenizer;
}

ThinkMode choose_think_mode(const RunOptions& options, std::uint64_t context_tokens) {
    const ThinkMode wanted = options.think.value_or(ThinkMode::off);
    const ThinkMode mode = think_mode_for_context(wanted, context_tokens);
    if (mode != wanted) {
        say(
            fmt::format("--think-max needs a context of {} tokens and the plan has {}: it thinks "
                        "as with --think",
                        format_count(kThinkMaxContextTokens), format_count(context_tokens)));
    }
    return mode;
}

/// `text` is the prompt where the source is one of text.
Result<Prompt> make_prompt(const RunOptions& options, PromptSource source, const std::string& text,
                           const Launch& launch) {
    const std::uint64_t context_tokens = launch.plan.grant.context_tokens;
    Prompt prompt{.source = source, .think = choose_think_mode(options, context_tokens)};
    if (source != PromptSource::tokens || options.generates()) {
        Result<Tokenizer> tokenizer = tokenizer_of(launch.model);
        if (!tokenizer) return tokenizer.error();
        prompt.tokenizer = std::move(*tokenizer);
    }
    if (source == PromptSource::chat) return prompt;
    Result<std::vector<TokenId>> tokens =
        source == PromptSource::tokens
            ? read_token_file(*options.token_path, launch.model.hyper.vocab_size)
            : encode_prompt(options, prompt.think, text, *prompt.tokenizer);
    if (!tokens) return tokens.error();
    prompt.tokens = std::move(*tokens);
    const Status room =
        check_prompt_length(prompt.tokens.size(), context_tokens, options.generates());
    if (!room) return room.error();
    return prompt;
}

std::uint64_t fresh_seed() {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
}

/// One prompt, one reply.
Status run_once(const RunOptions& options, const Launch& launch, const Prompt& prompt,
                LoadedModel& model, TurnRunner& runner) {
    Result<StopStrings> stops = StopStrings::create(options.stops);
    if (!stops) return stops.error();
    TextOutput output(stdout, *prompt.tokenizer, std::move(*stops));
    Result<Turn> turn = runner.run(prompt.tokens, output);
    if (!turn) return turn.error();
    if (isatty(STDOUT_FILENO) != 0) fmt::print("\n");
    std::fflush(stdout);
    turn->tally.experts = model.expert_traffic();
    say(turn_summary(turn->tally, launch.plan.predicted));
    if (turn->tally.interrupted) return Error{ErrorKind::interrupted, "interrupted"};
    return ok_status();
}

Status generate(const RunOptions& options, const Launch& launch, const Prompt& prompt,
                LoadedModel& model) {
    const SamplingOptions sampling = sampling_options(options, launch.plan.sampling, fresh_seed());
    Result<Sampler> sampler = Sampler::create(sampling, launch.model.hyper.vocab_size);
    if (!sampler) return sampler.error();
    const std::uint64_t context_tokens = launch.plan.grant.context_tokens;
    const StopLimits limits{.eos = prompt.tokenizer->special().eos,
                            .max_tokens = options.max_tokens.value_or(0),
                            .context_tokens = context_tokens};
    InterruptFlag interrupt;
    TurnRunner runner(model.token_model(), std::move(*sampler), limits, interrupt, stderr,
                      inspect_terminal(STDERR_FILENO));
    if (sampling.temperature > 0) say(fmt::format("seed {}", sampling.seed));
    if (prompt.source != PromptSource::chat) {
        return run_once(options, launch, prompt, model, runner);
    }
    LineReader reader(stdin, stderr, interrupt);
    Conversation conversation(*prompt.tokenizer, prompt.think, opening_messages(options));
    return run_chat({.replies = stdout,
                     .messages = stderr,
                     .tokenizer = &*prompt.tokenizer,
                     .stops = options.stops,
                     .context_tokens = context_tokens,
                     .predicted = launch.plan.predicted},
                    reader, interrupt, conversation, runner);
}

Status carry_out(const RunOptions& options, const Launch& launch, const Prompt& prompt) {
    if (const Status there = check_memory(launch.plan, available_memory_bytes()); !there) {
        return there;
    }
    const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    Result<LoadedModel> model = LoadedModel::load(launch, options.threads.value_or(cores), stderr,
                                                  inspect_terminal(STDERR_FILENO));
    if (!model) return model.error();
    if (options.writes_logits()) {
        const Status written = model->write_logits(prompt.tokens, options);
        if (!written) return written;
    }
    const Status done =
        options.generates() ? generate(options, launch, prompt, *model) : ok_status();
    if (options.memory_report) fmt::print(stderr, "{}", model->memory_report());
    return done;
}

Status run(const RunCommand& command) {
    const PromptSource source = prompt_source(command.run, isatty(STDIN_FILENO) != 0);
    for (const Status& checked :
         {check_output_path(command.planning), check_run_options(command.run, source)}) {
        if (!checked) return checked;
    }
    std::string text;
    if (source != PromptSource::chat && source != PromptSource::tokens) {
        Result<std::string> read = read_prompt(command.run, source, stdin);
        if (!read) return read.error();
        text = std::move(*read);
    }
    const Result<Launch> launch = prepare_launch(command.planning, command.run.verbose);
    if (!launch) return launch.error();
    show_plan(*launch, command.run.verbose);
    if (command.planning.output_path) {
        const Status saved =
            write_text_file(*command.planning.output_path, plan_to_yaml(launch->plan));
        if (!saved) return saved;
    }
    if (const Status checked = check_launch(*launch, command); !checked) return checked;
    announce_limits(*launch, command.run);
    const Result<Prompt> prompt = make_prompt(command.run, source, text, *launch);
    if (!prompt) return prompt.error();
    return carry_out(command.run, *launch, *prompt);
}

}  // namespace

void add_run_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<RunCommand>();
    add_planning_options(command, options->planning);
    add_run_options(command, options->run);
    command.footer(
        "Without a prompt: a conversation on a terminal, else the standard input. Generated text "
        "alone goes to the standard output.\nExit status: 0 done; 2 wrong usage or a bad file; 3 "
        "it does not fit; 4 --strict and not in full; 6 a read or write failed; 130 "
        "interrupted.\nExample: plimsoll run model.gguf -p 'Why is the sky blue?' --ctx 32768");
    action = [options] { return run(*options); };
}

}  // namespace plimsoll
