#include "tools/inspect.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/environment.hpp"
#include "tools/inspection.hpp"
#include "tools/plan_style.hpp"
#include "tools/text_file.hpp"

namespace plimsoll {
namespace {

struct InspectOptions {
    std::string model;
    bool tensors = false;
    bool json = false;
};

Status inspect(const InspectOptions& options) {
    const Result<std::string> config_dir = find_config_dir();
    if (!config_dir) return config_dir.error();
    const Result<Inspection> inspection = inspect_model(options.model, *config_dir);
    if (!inspection) return inspection.error();
    const Status shown = print_text(
        options.json ? inspection_json(*inspection, options.tensors)
                     : inspection_text(*inspection, options.tensors, standard_view().columns));
    if (!shown) return shown;
    if (!inspection->model) return Error{ErrorKind::bad_file, inspection->problem};
    return ok_status();
}

}  // namespace

void add_inspect_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<InspectOptions>();
    command.add_option("MODEL", options->model, "A GGUF file, or an inventory such as flash-q2")
        ->required()
        ->option_text(" ");
    command.add_flag("--tensors", options->tensors, "List every tensor as well");
    command.add_flag("--json", options->json, "Print one JSON object instead of text");
    action = [options] { return inspect(*options); };
}

}  // namespace plimsoll
