#include "tools/probe.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tools/file_rate.hpp"
#include "tools/machine_file.hpp"
#include "tools/machine_probe.hpp"
#include "tools/plan_style.hpp"
#include "tools/terminal.hpp"
#include "tools/text_file.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

struct ProbeOptions {
    std::optional<std::string> output_path;
    std::string folder = ".";
    std::optional<std::string> file;  // to be read as a model is
};

std::string table(const std::vector<ProbeRow>& rows, std::uint32_t columns) {
    std::size_t subject_columns = 0, figure_columns = 0;
    for (const ProbeRow& row : rows) {
        subject_columns = std::max(subject_columns, display_columns(row.subject));
        figure_columns = std::max(figure_columns, display_columns(row.figure));
    }
    std::string text;
    for (const ProbeRow& row : rows)
        text += hanging(padded(row.subject, subject_columns) + "  " +
                            right_aligned(row.figure, figure_columns) + "  ",
                        row.how, columns);
    return text;
}

Status probe(const ProbeOptions& options) {
    const std::string name = options.output_path
                                 ? std::filesystem::path(*options.output_path).stem().string()
                                 : "this-machine";
    Result<MachineProbe> measured = probe_machine(name, options.folder);
    if (!measured) return measured.error();
    if (options.file) {
        const Result<FileRate> rate = measure_file(*options.file);
        if (!rate) return rate.error();
        measured->rows.push_back({"loading " + *options.file,
                                  fmt::format("{:.2f} GB/s", rate->read_bytes_per_s / 1e9),
                                  rate->how});
    }
    if (options.output_path) {
        const Status written =
            write_text_file(*options.output_path, machine_yaml(measured->machine));
        if (!written) return written.error();
        // A file on the standard output has it for itself.
        if (*options.output_path == "-") return ok_status();
    }
    return print_text(table(measured->rows, standard_view().columns));
}

}  // namespace

void add_probe_command(CLI::App& command, Action& action) {
    const auto options = std::make_shared<ProbeOptions>();
    command
        .add_option("-o,--output", options->output_path,
                    "Write a device file, for --device FILE; - is the standard output")
        ->option_text("FILE");
    command
        .add_option("--dir", options->folder,
                    "Measure the disk of this folder: 1 GiB is written, read and removed "
                    "(default: the current one)")
        ->option_text("DIR");
    command
        .add_option("--file", options->file,
                    "Measure too how fast this file is read as a model is loaded onto a GPU")
        ->option_text("FILE");
    action = [options] { return probe(*options); };
}

}  // namespace plimsoll
