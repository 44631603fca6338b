#include "tools/planning.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "planner/units.hpp"
#include "tools/environment.hpp"
#include "tools/known_cards.hpp"
#include "tools/machine_probe.hpp"
#include "tools/text_file.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

Error invalid(const std::string& what, const std::string& problem, ErrorKind kind) {
    return {kind, fmt::format("{} breaks a rule of plans: {}", what, problem)};
}

/// A changed request and what it would change.
struct WhatIf {
    std::string option;
    Request request;
};

std::optional<Plan> plan_if(const PlanInputs& inputs, const Request& request) {
    Result<Plan> plan = make_plan(inputs.model, inputs.mtp_or_null(), inputs.machine, request);
    if (!plan || plan->refusal) return std::nullopt;
    return std::move(*plan);
}

std::uint64_t gib_up(std::uint64_t bytes) { return ceil_div(bytes, kGiB); }

/// The least memory in whole GiB, up to all of the model and as much again for the rest, with which
/// the plan is full. One device only: two would need a size each.
std::optional<WhatIf> enough_vram(const Plan& plan, const PlanInputs& inputs) {
    if (plan.devices.size() != 1) return std::nullopt;
    const auto with = [&](std::uint64_t gib) {
        Request request = inputs.request;
        request.vram_bytes.set(gib * kGiB, Source::cli);
        return request;
    };
    const auto is_full = [&](std::uint64_t gib) {
        const std::optional<Plan> other = plan_if(inputs, with(gib));
        return other && other->verdict == Verdict::full;
    };
    std::uint64_t low = plan.devices[0].vram_bytes / kGiB;
    std::uint64_t high = gib_up(2 * inputs.model.data_bytes) + low;
    if (!is_full(high)) return std::nullopt;
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (is_full(middle) ? high : low) = middle;
    }
    return WhatIf{fmt::format("--vram {}GiB", high), with(high)};
}

std::optional<WhatIf> enough_host_memory(const Plan& plan, const PlanInputs& inputs) {
    const std::uint64_t percent = inputs.request.host_percent.value;
    if (plan.nvme.bytes == 0 || plan.unified_memory || percent == 0) return std::nullopt;
    const std::uint64_t gib = gib_up(plan.host.available_bytes + plan.nvme.bytes / percent * 100);
    WhatIf out{fmt::format("--host-mem {}GiB", gib), inputs.request};
    out.request.host_bytes.set(gib * kGiB, Source::cli);
    return out;
}

std::optional<WhatIf> require_mtp(const Plan& plan, const PlanInputs& inputs) {
    if (plan.grant.mtp || !inputs.mtp || inputs.request.mtp.value == Wish::off) return std::nullopt;
    WhatIf out{"--require mtp", inputs.request};
    out.request.mtp.set(Wish::require, Source::cli);
    return out;
}

std::string difference(const Plan& plan, const Plan& other) {
    std::vector<std::string> parts;
    const std::uint64_t before = plan.experts_on_devices(), after = other.experts_on_devices();
    if (after == other.experts_total)
        parts.push_back("all experts on the device");
    else if (after != before)
        parts.push_back(fmt::format("{} {} experts on the device",
                                    format_count(after > before ? after - before : before - after),
                                    after > before ? "more" : "fewer"));
    if (plan.nvme.experts != 0 && other.nvme.experts == 0 && after != other.experts_total)
        parts.push_back("nothing read from disk");
    if (other.grant.mtp && !plan.grant.mtp) parts.push_back("drafts on");
    parts.push_back(fmt::format("about {} tokens/s instead of {}",
                                format_rate(other.predicted.decode_tokens_per_s),
                                format_rate(plan.predicted.decode_tokens_per_s)));
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// The visible GPUs, else the CPU; a note where there are GPUs that cannot be asked.
Result<MachineFacts> this_machine(const Request& request, const std::string& config_dir,
                                  std::vector<std::string>& notes) {
    const std::size_t n_gpus = count_gpus("/", std::getenv("CUDA_VISIBLE_DEVICES"));
    if (n_gpus == 0) return machine_of(request, config_dir);
    VisibleGpus visible = visible_gpus();
    if (!visible.devices.empty()) {
        const std::vector<DeviceFacts> known = measured_cards(config_dir);
        for (DeviceFacts& device : visible.devices) adopt_shares(device, known);
        return this_machine_gpus(request, std::move(visible.devices), visible.unified_memory);
    }
    notes.push_back(
        fmt::format("{} GPU{} visible and not to be measured ({}): planned for the CPU; "
                    "--device NAME plans for a card",
                    n_gpus, n_gpus == 1 ? "" : "s", visible.problem));
    return machine_of(request, config_dir);
}

/// Enough to leave a drive's own cache behind, and little to wait for.
constexpr std::uint64_t kDiskSpanBytes = 256 * kMiB;

/// The rate of the disk that --nvme names, as a note too.
Status take_disk(const std::string& folder, MachineFacts& machine,
                 std::vector<std::string>& notes) {
    const Result<DiskFigure> disk = measure_disk_of(folder, kDiskSpanBytes);
    if (!disk)
        return Error{ErrorKind::usage, fmt::format("--nvme {}: {}", folder, disk.error().message)};
    machine.nvme_read_bytes_per_s = disk->read_bytes_per_s;
    notes.push_back(fmt::format("disk of {}: {:.2f} GB/s, {}", folder, disk->read_bytes_per_s / 1e9,
                                disk->how));
    return ok_status();
}

}  // namespace

bool names_disk(const Request& request) {
    return request.nvme.value != "allow" && request.nvme.value != "off";
}

Result<PlanInputs> read_plan_inputs(const PlanningOptions& options, DefaultDevice default_device) {
    Result<std::string> config_dir = find_config_dir();
    if (!config_dir) return config_dir.error();
    Result<Request> request = request_of(options);
    if (!request) return request.error();
    if (request->model.value.empty())
        return Error{ErrorKind::usage,
                     "no model: name a GGUF file or one of configs/models, such as flash-q2"};
    std::vector<std::string> notes;
    const bool seeks_gpus =
        request->device.value.empty() && default_device == DefaultDevice::visible_gpus;
    Result<MachineFacts> machine =
        seeks_gpus ? this_machine(*request, *config_dir, notes) : machine_of(*request, *config_dir);
    if (!machine) return machine.error();
    if (names_disk(*request)) {
        const Status taken = take_disk(request->nvme.value, *machine, notes);
        if (!taken) return taken.error();
    }
    Result<Model> model = load_model(request->model.value, *config_dir);
    if (!model) return model.error();
    PlanInputs inputs{.config_dir = std::move(*config_dir),
                      .request = std::move(*request),
                      .machine = std::move(*machine),
                      .model = std::move(*model),
                      .notes = std::move(notes)};
    if (!inputs.request.mtp_model.value.empty()) {
        Result<Model> mtp = load_model(inputs.request.mtp_model.value, inputs.config_dir);
        if (!mtp) return mtp.error();
        inputs.mtp = std::move(*mtp);
    }
    return inputs;
}

Result<Plan> plan_of(const PlanInputs& inputs) {
    Result<Plan> plan =
        make_plan(inputs.model, inputs.mtp_or_null(), inputs.machine, inputs.request);
    if (!plan) return plan;
    if (const auto problem = validate(*plan))
        return invalid("the plan just made", *problem, ErrorKind::internal);
    return plan;
}

Result<Plan> load_plan(const std::string& path) {
    const Result<std::string> text = read_text_file(path);
    if (!text) return text.error();
    Result<Plan> plan = plan_from_yaml(*text, path);
    if (!plan) return plan;
    if (const auto problem = validate(*plan)) return invalid(path, *problem, ErrorKind::bad_file);
    return plan;
}

std::vector<Suggestion> alternatives_to(const Plan& plan, const PlanInputs& inputs) {
    std::vector<Suggestion> out;
    if (plan.refusal || plan.verdict == Verdict::full) return out;
    for (const std::optional<WhatIf>& change :
         {enough_vram(plan, inputs), enough_host_memory(plan, inputs), require_mtp(plan, inputs)}) {
        if (!change) continue;
        const std::optional<Plan> other = plan_if(inputs, change->request);
        if (other) out.push_back({difference(plan, *other), change->option, other->verdict});
    }
    return out;
}

}  // namespace plimsoll
