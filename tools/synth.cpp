#include "tools/synth.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "planner/inventory.hpp"
#include "planner/units.hpp"
#include "runtime/synthetic_model.hpp"
#include "tools/environment.hpp"
#include "tools/interrupt.hpp"
#include "tools/plan_reads.hpp"
#include "tools/planning.hpp"
#include "tools/progress.hpp"
#include "tools/synth_file.hpp"
#include "tools/terminal.hpp"
#include "tools/text_file.hpp"
#include "tools/whole_number.hpp"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

struct SynthOptions {
    std::string like;
    std::string path;
    std::optional<std::string> mtp_path;
    std::optional<std::uint64_t> seed;
    bool sparse = false;
    std::optional<std::string> plan_path;  // of --only
};

/// What LIKE means: shapes of a main model and of its draft head, either of which may be missing.
struct Shapes {
    std::uint64_t seed = 1;
    std::optional<Inventory> main;
    std::optional<Inventory> mtp;
};

Result<Inventory> read_inventory(const fs::path& path) {
    const Result<std::string> text = read_text_file(path.string());
    if (!text) return text.error();
    return parse_inventory(*text, path.string());
}

/// The draft head of "flash-q2" is "flash-q2-mtp", or "flash-mtp".
Result<std::optional<Inventory>> draft_head_of(const std::string& name, const fs::path& folder) {
    for (const std::string& stem : {name, name.substr(0, name.rfind('-'))}) {
        const fs::path path = folder / (stem + "-mtp.yaml");
        std::error_code ignored;
        if (!fs::is_regular_file(path, ignored)) continue;
        Result<Inventory> inventory = read_inventory(path);
        if (!inventory) return inventory.error();
        return std::optional(std::move(*inventory));
    }
    return std::optional<Inventory>();
}

Result<Shapes> shapes_named(const std::string& name) {
    const Result<std::string> config_dir = find_config_dir();
    if (!config_dir) return config_dir.error();
    const fs::path folder = fs::path(*config_dir) / "models";
    std::error_code ignored;
    const fs::path path = folder / (name + ".yaml");
    if (name.find('/') != std::string::npos || !fs::is_regular_file(path, ignored))
        return Error{ErrorKind::usage,
                     fmt::format("no shape '{}': neither one of {} nor a case file ending in .json",
                                 name, folder.string())};
    Result<Inventory> inventory = read_inventory(path);
    if (!inventory) return inventory.error();
    Shapes shapes;
    if (inventory->kind == ModelKind::mtp) {
        shapes.mtp = std::move(*inventory);
        return shapes;
    }
    shapes.main = std::move(*inventory);
    Result<std::optional<Inventory>> mtp = draft_head_of(name, folder);
    if (!mtp) return mtp.error();
    shapes.mtp = std::move(*mtp);
    return shapes;
}

Result<Shapes> shapes_like(const std::string& like) {
    if (fs::path(like).extension() != ".json") return shapes_named(like);
    const Result<std::string> text = read_text_file(like);
    if (!text) return text.error();
    Result<SyntheticCase> example = parse_case(*text, like);
    if (!example) return example.error();
    return Shapes{example->seed, std::move(example->main), std::move(example->mtp)};
}

/// What of the file is written; the rest are holes.
struct Extent {
    bool sparse = false;         // nothing but the header
    const Plan* only = nullptr;  // what this plan reads; null: everything
};

Result<std::vector<FileRange>> ranges_of(const Extent& extent, const Inventory& shape,
                                         const SyntheticModel& made) {
    if (extent.sparse) return std::vector<FileRange>();
    if (extent.only == nullptr) return all_ranges(made);
    Model model{.kind = shape.kind, .hyper = shape.hyper, .tensors = made.tensors};
    finish_model(model);
    const ModelRef* planned = shape.kind == ModelKind::main ? &extent.only->model
                              : extent.only->mtp_model      ? &*extent.only->mtp_model
                                                            : nullptr;
    if (planned == nullptr || planned->fingerprint != model.fingerprint)
        return Error{ErrorKind::usage,
                     fmt::format("--only: the plan is not for a model like {}", shape.name)};
    return plan_reads(*extent.only, model);
}

Status write_model(const Inventory& shape, std::uint64_t seed, const std::string& path,
                   const Extent& extent) {
    const Result<SyntheticModel> model = synthetic_model(shape, seed);
    if (!model) return model.error();
    Result<std::vector<FileRange>> ranges = ranges_of(extent, shape, *model);
    if (!ranges) return ranges.error();
    SynthJob job{.model = &*model, .path = path, .ranges = std::move(*ranges)};
    job.threads = std::max(1u, std::thread::hardware_concurrency());
    std::uint64_t total_bytes = 0;
    for (const FileRange& range : job.ranges) total_bytes += range.size_bytes;
    const auto start = std::chrono::steady_clock::now();
    ProgressLine line(stderr, inspect_terminal(STDERR_FILENO), shape.name, ProgressUnit::bytes,
                      total_bytes);
    const InterruptFlag interrupt;
    const Status written = write_synthetic_file(job, [&](std::uint64_t done_bytes) {
        line.update(done_bytes);
        return !interrupt.raised();
    });
    line.finish();
    if (!written) return written;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const std::uint64_t written_bytes = model->header.size() + total_bytes;
    const std::string rate = fmt::format(
        ", {:.2f} GB/s", static_cast<double>(written_bytes) / std::max(taken.count(), 1e-6) / 1e9);
    fmt::print(stderr, "{}: {} like {}, seed {}, {} written{} in {:.1f} s{}\n", path,
               format_bytes(model->file_bytes), shape.name, seed, format_bytes(written_bytes),
               extent.sparse || extent.only != nullptr ? ", the rest holes" : "", taken.count(),
               extent.sparse ? "" : rate);
    return ok_status();
}

Status synth(const SynthOptions& options) {
    if (options.sparse && options.plan_path)
        return Error{ErrorKind::usage, "--sparse and --only exclude each other"};
    if (options.mtp_path == options.path)
        return Error{ErrorKind::usage, "-o and --mtp name the same file"};
    const Result<Shapes> shapes = shapes_like(options.like);
    if (!shapes) return shapes.error();
    const std::uint64_t seed = options.seed.value_or(shapes->seed);
    if (options.mtp_path && !shapes->main)
        return Error{
            ErrorKind::usage,
            fmt::format("{} is a draft head itself: it goes to -o, without --mtp", options.like)};
    if (options.mtp_path && !shapes->mtp)
        return Error{ErrorKind::usage, fmt::format("--mtp: {} has no draft head", options.like)};
    std::optional<Plan> plan;
    if (options.plan_path) {
        Result<Plan> loaded = load_plan(*options.plan_path);
        if (!loaded) return loaded.error();
        plan = std::move(*loaded);
    }
    const Extent extent{.sparse = options.sparse, .only = plan ? &*plan : nullptr};
    const Inventory& first = shapes->main ? *shapes->main : *shapes->mtp;
    const Status written = write_model(first, seed, options.path, extent);
    if (!written || !options.mtp_path) return written;
    return write_model(*shapes->mtp, seed, *options.mtp_path, extent);
}

}  // namespace

void add_synth_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<SynthOptions>();
    command
        .add_option("LIKE", options->like,
                    "A shape of configs/models (tiny, mid, flash-q2, …) or a case file (*.json)")
        ->required()
        ->option_text(" ");
    command.add_option("-o,--output", options->path, "Where the model goes")
        ->required()
        ->option_text("FILE");
    command.add_option("--mtp", options->mtp_path, "Where its draft head goes")
        ->option_text("FILE");
    command.add_option("--seed", options->seed, "Which weights (default: the case's, else 1)")
        ->check(whole_number(0))
        ->option_text("N");
    command.add_flag("--sparse", options->sparse,
                     "Write the header and leave holes for the weights");
    command
        .add_option("--only", options->plan_path,
                    "Write what this plan reads, and leave holes else")
        ->option_text("PLAN.yaml");
    command.footer(
        "The weights are noise, equal for equal seeds on every machine: good for trying a plan, "
        "useless for text.\nExample: plimsoll synth tiny -o tiny.gguf --mtp tiny-mtp.gguf");
    action = [options] { return synth(*options); };
}

}  // namespace plimsoll
