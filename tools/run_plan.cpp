#include "tools/run_plan.hpp"

#include <fmt/format.h>

#include <string_view>

#include "planner/units.hpp"
#include "tools/text_layout.hpp"

namespace plimsoll {
namespace {

std::string arena_line(const Arena& arena, std::uint64_t budget_bytes) {
    std::vector<std::string> classes;
    for (std::size_t cls = 0; cls < kRegionClassCount; ++cls) {
        if (arena.by_class[cls] == 0) continue;
        classes.push_back(fmt::format("{} {}", region_class_name(static_cast<RegionClass>(cls)),
                                      format_bytes(arena.by_class[cls])));
    }
    return fmt::format("{} {} of {} ({})", arena.name, format_bytes(arena.planned_bytes),
                       format_bytes(budget_bytes), fmt::join(classes, ", "));
}

std::string prediction_line(const Prediction& predicted) {
    return fmt::format("about {} tokens/s, {} in prefill; bound by {}",
                       format_rate(predicted.decode_tokens_per_s),
                       format_rate(predicted.prefill_tokens_per_s), predicted.bound);
}

/// What a GPU cannot do yet: work over several cards, or with weights that stay on the host.
Status check_gpu_plan(const Plan& plan) {
    const DevicePlan& device = plan.devices.front();
    if (device.facts.architecture == "cpu") return ok_status();
    const auto refuse = [&](const std::string& what) {
        return Error{ErrorKind::usage,
                     fmt::format("{} ({}): {}, which is not built yet for GPUs; use --device cpu",
                                 plan.machine_name, device.facts.name, what)};
    };
    if (plan.devices.size() != 1)
        return refuse(
            fmt::format("the plan divides the layers among {} devices", plan.devices.size()));
    if (plan.unified_memory) return refuse("its memory is the host's");
    if (plan.host.experts != 0 || plan.nvme.experts != 0)
        return refuse(fmt::format("{} of {} experts would come from outside the device",
                                  format_count(plan.host.experts + plan.nvme.experts),
                                  format_count(plan.experts_total)));
    if (plan.grant.head_streamed || plan.grant.dense_streamed_layers != 0)
        return refuse("dense weights would be streamed from the host");
    return ok_status();
}

/// What a run that needs the missing tier could do instead.
std::string nvme_cure(const Plan& plan) {
    return fmt::format(
        "{} more memory would hold them: raise --vram or --host-mem where the machine has it",
        format_mib(plan.nvme.bytes));
}

}  // namespace

std::vector<std::string> plan_brief(const Plan& plan) {
    std::vector<std::string> places;
    for (const DevicePlan& device : plan.devices) {
        places.push_back(arena_line(device.arena, device.budget_bytes));
    }
    if (plan.host.arena.planned_bytes != 0) {
        places.push_back(arena_line(plan.host.arena, plan.host.budget_bytes));
    }
    std::vector<std::string> lines = {
        fmt::format("plan: {}; context {}, chunk {}; {}", verdict_name(plan.verdict),
                    format_count(plan.grant.context_tokens), format_count(plan.grant.chunk_tokens),
                    fmt::join(places, "; "))};
    for (const Feature& feature : plan.features) {
        if (feature.requested == feature.granted) continue;
        lines.push_back(fmt::format("  {}: {}", feature.name, feature.reason));
    }
    const bool costs_speed = lines.size() > 1;
    if (costs_speed) lines.push_back("  " + prediction_line(plan.predicted));
    return lines;
}

Error refusal_error(const Plan& plan) {
    const Refusal& refusal = *plan.refusal;
    std::string message =
        fmt::format("{} short by {} ({})", refusal.pool,
                    format_mib(align_up(refusal.short_bytes, kMiB)), refusal.reason);
    std::string_view before = ": ";
    for (const Suggestion& cure : refusal.suggestions) {
        message += fmt::format("{}{} ({})", before, cure.text, cure.option);
        before = ", or ";
    }
    return {ErrorKind::no_fit, message};
}

Status check_runnable(const Plan& plan, bool strict) {
    if (plan.refusal) return refusal_error(plan);
    if (strict && plan.verdict != Verdict::full) {
        return Error{
            ErrorKind::not_strict,
            fmt::format("the plan is {} and --strict asks for full: drop --strict, or give "
                        "what the lines above name",
                        verdict_name(plan.verdict))};
    }
    if (Status runnable = check_gpu_plan(plan); !runnable) return runnable;
    if (plan.nvme.experts != 0) {
        return Error{
            ErrorKind::usage,
            fmt::format("{} of {} experts ({}) would be read from the file during the run, "
                        "which is not built yet; {}",
                        format_count(plan.nvme.experts), format_count(plan.experts_total),
                        format_bytes(plan.nvme.bytes), nvme_cure(plan))};
    }
    return ok_status();
}

}  // namespace plimsoll
