#include "tools/planning_options.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "planner/units.hpp"
#include "tools/text_file.hpp"
#include "tools/whole_number.hpp"

namespace plimsoll {
namespace {

using Text = std::optional<std::string>;

constexpr std::uint64_t kTokensMax = 1ull << 32;
constexpr std::uint64_t kDraftsMax = 16;
constexpr std::uint64_t kSessionsMax = 1024;

/// Options of one value: adding one is adding a row here and its meaning below.
constexpr struct {
    const char* name;
    const char* type;
    const char* help;
    Text PlanningOptions::*field;
} kOptions[] = {
    {"--device", "NAME|FILE|cpu", "The card to plan for (default: what this machine has)",
     &PlanningOptions::device},
    {"--profile", "FILE", "Targets, limits and priorities; the command line beats it",
     &PlanningOptions::profile_path},
    {"--mtp", "FILE|NAME", "A draft head for speculation", &PlanningOptions::mtp_model},
    {"--ctx", "N|max", "Context in tokens, not to be lowered; max: the largest that fits",
     &PlanningOptions::context},
    {"--vram", "SIZE", "Memory of each device, before its overhead, in place of what is free",
     &PlanningOptions::vram},
    {"--reserve", "SIZE", "Memory of each device to leave alone (default 256MiB)",
     &PlanningOptions::reserve},
    {"--host-mem", "SIZE", "Host memory, in place of what is available; 80 % of it is planned",
     &PlanningOptions::host_memory},
    {"--nvme", "DIR|off", "The disk that experts may be read from, or none",
     &PlanningOptions::nvme},
    {"--draft", "N", "Tokens to draft per step; 0 switches the draft head off (default 1)",
     &PlanningOptions::drafts},
    {"--prefill-chunk", "N", "Tokens of a prefill step, not to be lowered (default up to 4096)",
     &PlanningOptions::prefill_chunk},
    {"--sessions", "N", "Contexts to keep side by side (default 1)", &PlanningOptions::sessions},
    {"--rounding", "on|off", "Round the cache as the model was trained (default on)",
     &PlanningOptions::rounding},
};

Error usage(std::string message) { return {ErrorKind::usage, std::move(message)}; }

Result<std::uint64_t> parse_count(std::string_view option, std::string_view text, std::uint64_t min,
                                  std::uint64_t max) {
    const Result<std::uint64_t> value = parse_whole_number(text, min, max);
    if (!value) return usage(fmt::format("{}: {}", option, value.error().message));
    return value;
}

Status set_count(Setting<std::uint64_t>& setting, std::string_view option, const Text& text,
                 std::uint64_t min, std::uint64_t max) {
    if (!text) return ok_status();
    const Result<std::uint64_t> value = parse_count(option, *text, min, max);
    if (!value) return value.error();
    setting.set(*value, Source::cli);
    return ok_status();
}

template <class T>
Status set_size(Setting<T>& setting, std::string_view option, const Text& text) {
    if (!text) return ok_status();
    const Result<std::uint64_t> value = parse_size(*text);
    if (!value) return usage(fmt::format("{}: {}", option, value.error().message));
    setting.set(T(*value), Source::cli);
    return ok_status();
}

void set_text(Setting<std::string>& setting, const Text& text) {
    if (text) setting.set(*text, Source::cli);
}

/// A number given on the command line is meant: it is kept or the plan refuses.
Status set_fixed(Setting<Range>& range, Setting<Wish>& wish, std::string_view option,
                 const Text& text) {
    if (!text) return ok_status();
    const Result<std::uint64_t> tokens = parse_count(option, *text, 1, kTokensMax);
    if (!tokens) return tokens.error();
    range.set({.target = *tokens, .minimum = *tokens}, Source::cli);
    wish.set(Wish::require, Source::cli);
    return ok_status();
}

Status set_context(Request& request, const Text& text) {
    if (text == "max") {
        request.context_is_max.set(true, Source::cli);
        return ok_status();
    }
    return set_fixed(request.context, request.context_wish, "--ctx", text);
}

Status set_nvme(Request& request, const Text& text) {
    if (!text) return ok_status();
    struct stat info {};
    const bool is_directory = stat(text->c_str(), &info) == 0 && S_ISDIR(info.st_mode);
    if (*text != "off" && !is_directory)
        return usage(fmt::format("--nvme: '{}' is neither a directory nor off", *text));
    request.nvme.set(*text, Source::cli);
    return ok_status();
}

Status set_drafts(Request& request, const Text& text) {
    if (!text) return ok_status();
    const Result<std::uint64_t> count = parse_count("--draft", *text, 0, kDraftsMax);
    if (!count) return count.error();
    if (*count == 0)
        request.mtp.set(Wish::off, Source::cli);
    else
        request.drafts.set(*count, Source::cli);
    return ok_status();
}

Status set_rounding(Request& request, const Text& text) {
    if (!text) return ok_status();
    if (*text != "on" && *text != "off")
        return usage(fmt::format("--rounding: '{}' is neither on nor off", *text));
    request.rounding.set(*text == "on", Source::cli);
    return ok_status();
}

/// Requirements come after all other options, so that they see the targets those set. What
/// contradicts another option is refused, since the order of arguments must not decide.
Status set_requirements(Request& request, const PlanningOptions& options) {
    std::vector<std::string> seen;
    for (const std::string& text : options.requirements) {
        const std::string feature = text.substr(0, text.find('='));
        if (std::find(seen.begin(), seen.end(), feature) != seen.end())
            return usage(fmt::format("--require {}: {} is required twice", text, feature));
        seen.push_back(feature);
        if (feature == "mtp" && options.drafts == "0")
            return usage("--require mtp and --draft 0 exclude each other");
        if (const Status done = apply_require(request, text); !done) return done;
    }
    const auto disagrees = [](const Text& typed, const Range& range) {
        return typed && *typed != "max" &&
               *parse_whole_number(*typed, 1, kTokensMax) != range.target;
    };
    if (disagrees(options.context, request.context.value))
        return usage(fmt::format("--ctx {} and --require context={} disagree", *options.context,
                                 request.context.value.target));
    if (disagrees(options.prefill_chunk, request.prefill_chunk.value))
        return usage(fmt::format("--prefill-chunk {} and --require prefill_chunk={} disagree",
                                 *options.prefill_chunk, request.prefill_chunk.value.target));
    if (options.context == "max" && std::find(seen.begin(), seen.end(), "context") != seen.end())
        return usage("--ctx max and --require context exclude each other");
    return ok_status();
}

Status check_plan_alone(const PlanningOptions& options) {
    if (!options.plan_path) return ok_status();
    const auto excludes = [](std::string_view name) {
        return usage(fmt::format("--plan is a finished plan: {} cannot change it", name));
    };
    for (const auto& row : kOptions)
        if (options.*row.field) return excludes(row.name);
    if (!options.requirements.empty()) return excludes("--require");
    if (options.precise) return excludes("--precise");
    return ok_status();
}

}  // namespace

void add_planning_options(CLI::App& command, PlanningOptions& options) {
    constexpr const char* kGroup = "Planning";
    command
        .add_option("MODEL", options.model,
                    "A GGUF file, or the name of one in configs/models (default: the profile's)")
        ->option_text(" ");
    for (const auto& row : kOptions)
        command.add_option(row.name, options.*row.field, row.help)
            ->option_text(row.type)
            ->group(kGroup);
    command
        .add_option(
            "--require", options.requirements,
            "Never give up a feature: context, prefill_chunk, mtp, fp16_cache, embedding or "
            "experts, at VALUE or its target (repeatable)")
        ->option_text("F[=VALUE]")
        ->type_size(1)
        ->allow_extra_args(false)
        ->group(kGroup);
    command.add_flag("--strict", options.strict, "Exit with 4 unless everything fits in full")
        ->group(kGroup);
    command.add_flag("--precise", options.precise, "Float32 activations and cache rows")
        ->group(kGroup);
    command.add_option("-o,--output", options.output_path, "Save the plan")
        ->option_text("PLAN.yaml")
        ->group(kGroup);
    command.add_option("--plan", options.plan_path, "Take a saved plan instead of making one")
        ->option_text("PLAN.yaml")
        ->group(kGroup);
}

Result<Request> request_of(const PlanningOptions& options) {
    if (const Status alone = check_plan_alone(options); !alone) return alone.error();
    Request request = default_request();
    if (options.profile_path) {
        const Result<std::string> text = read_text_file(*options.profile_path);
        if (!text) return text.error();
        Result<Request> profiled = apply_profile(std::move(request), *text, *options.profile_path);
        if (!profiled) return profiled.error();
        request = std::move(*profiled);
    }
    set_text(request.model, options.model);
    set_text(request.mtp_model, options.mtp_model);
    set_text(request.device, options.device);
    if (options.strict) request.strict.set(true, Source::cli);
    if (options.precise) request.precise.set(true, Source::cli);
    for (const Status& done :
         {set_size(request.vram_bytes, "--vram", options.vram),
          set_size(request.reserve_bytes, "--reserve", options.reserve),
          set_size(request.host_bytes, "--host-mem", options.host_memory),
          set_count(request.sessions, "--sessions", options.sessions, 1, kSessionsMax),
          set_nvme(request, options.nvme), set_drafts(request, options.drafts),
          set_context(request, options.context),
          set_fixed(request.prefill_chunk, request.prefill_chunk_wish, "--prefill-chunk",
                    options.prefill_chunk),
          set_rounding(request, options.rounding)})
        if (!done) return done.error();
    if (const Status done = set_requirements(request, options); !done) return done.error();
    return request;
}

}  // namespace plimsoll
