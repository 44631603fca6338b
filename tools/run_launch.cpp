#include "tools/run_launch.hpp"

#include <fmt/format.h>

#include <utility>

#include "planner/units.hpp"
#include "tools/environment.hpp"
#include "tools/planning.hpp"

namespace plimsoll {
namespace {

/// The model a saved plan was made from, unchanged.
Result<Model> load_planned_model(const ModelRef& ref, const std::string& path,
                                 const std::string& config_dir) {
    Result<Model> model = load_model(path, config_dir);
    if (!model || model->fingerprint == ref.fingerprint) return model;
    return Error{ErrorKind::bad_file,
                 fmt::format("{} is not what the plan was made from: its fingerprint is {:016x}, "
                             "the plan has {:016x} of {}; make a new plan",
                             path, model->fingerprint, ref.fingerprint, ref.name)};
}

/// What load_model takes: the file, or the inventory's name.
std::string place_of(const ModelRef& ref) { return ref.path.empty() ? ref.name : ref.path; }

Result<Launch> saved_launch(const PlanningOptions& options) {
    // Refuses options that would change a finished plan.
    if (const Result<Request> request = request_of(options); !request) return request.error();
    const Result<std::string> config_dir = find_config_dir();
    if (!config_dir) return config_dir.error();
    Result<Plan> plan = load_plan(*options.plan_path);
    if (!plan) return plan.error();
    Result<Model> model =
        load_planned_model(plan->model, options.model.value_or(place_of(plan->model)), *config_dir);
    if (!model) return model.error();
    Launch launch{.plan = std::move(*plan), .model = std::move(*model)};
    if (launch.plan.grant.mtp && launch.plan.mtp_model) {
        const ModelRef& ref = *launch.plan.mtp_model;
        Result<Model> mtp = load_planned_model(ref, place_of(ref), *config_dir);
        if (!mtp) return mtp.error();
        launch.mtp = std::move(*mtp);
    }
    if (launch.plan.refusal) return launch;
    const Status fits = check_against(launch.plan, launch.model, launch.mtp_or_null());
    if (!fits)
        return Error{fits.error().kind,
                     fmt::format("{}: {}", *options.plan_path, fits.error().message)};
    return launch;
}

Result<Launch> fresh_launch(const PlanningOptions& options, bool seek_alternatives) {
    Result<PlanInputs> inputs = read_plan_inputs(options, DefaultDevice::visible_gpus);
    if (!inputs) return inputs.error();
    std::vector<std::string> notes = std::move(inputs->notes);
    Result<Plan> plan = plan_of(*inputs);
    if (!plan) return plan.error();
    Launch launch{.plan = std::move(*plan), .notes = std::move(notes)};
    if (seek_alternatives) launch.alternatives = alternatives_to(launch.plan, *inputs);
    launch.model = std::move(inputs->model);
    if (launch.plan.grant.mtp) launch.mtp = std::move(inputs->mtp);
    return launch;
}

}  // namespace

Result<Launch> prepare_launch(const PlanningOptions& options, bool seek_alternatives) {
    return options.plan_path ? saved_launch(options) : fresh_launch(options, seek_alternatives);
}

Status check_memory(const Plan& plan, std::uint64_t available_bytes) {
    std::uint64_t planned_bytes = plan.host.arena.planned_bytes;
    for (const DevicePlan& device : plan.devices)
        if (device.facts.architecture == "cpu") planned_bytes += device.arena.planned_bytes;
    if (available_bytes == 0 || planned_bytes <= available_bytes) return ok_status();
    return Error{ErrorKind::no_fit,
                 fmt::format("the plan takes {} and {} are available now, short by {}: free that "
                             "much, or lower --vram or --host-mem by it",
                             format_mib(planned_bytes), format_mib(available_bytes),
                             format_mib(align_up(planned_bytes - available_bytes, kMiB)))};
}

}  // namespace plimsoll
