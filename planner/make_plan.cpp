#include <fmt/format.h>

#include <algorithm>

#include "planner/carve.hpp"
#include "planner/check.hpp"
#include "planner/cost.hpp"
#include "planner/decisions.hpp"
#include "planner/hyper_fields.hpp"
#include "planner/ladder.hpp"
#include "planner/plan.hpp"
#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// The request with everything that follows from the model and the machine filled in.
Result<Request> effective_request(Request request, const Model& model, const Model* mtp,
                                  const MachineFacts& machine) {
    if (const Status checked = check_request(request); !checked) return checked.error();
    if (request.precise.value || !request.rounding.value) request.kv_format.value = KvFormat::f32;
    const std::uint64_t trained = model.hyper.context_length_tokens;
    Range& context = request.context.value;
    if (request.context_is_max.value) {
        context = {.target = trained, .minimum = std::min(trained, kContextTokensMin)};
        request.context_wish.value = Wish::prefer;
    } else if (request.context.source == Source::by_default) {
        if (machine.is_cpu()) context.target = kContextTokensDefaultCpu;
        context.target = std::min(context.target, trained);
    } else if (context.target > trained) {
        return Error{ErrorKind::usage,
                     fmt::format("context {} is above what {} was trained for, {} tokens",
                                 context.target, model.name, trained)};
    }
    context.minimum = std::min(context.minimum, context.target);
    Range& chunk = request.prefill_chunk.value;
    if (request.prefill_chunk.source == Source::by_default)
        chunk.target = std::min(chunk.target, context.target);
    chunk.minimum = std::min(chunk.minimum, chunk.target);
    if (mtp == nullptr) {
        if (request.mtp.value == Wish::require)
            return Error{ErrorKind::usage,
                         "mtp is required but no draft head is named (--mtp FILE)"};
        request.mtp.value = Wish::off;
    }
    // The CPU engine reads quantised weights in place; a second copy would only cost memory.
    if (machine.is_cpu()) {
        if (request.fp16_cache.value == Wish::require)
            return Error{ErrorKind::usage,
                         "fp16_cache is not applicable on the CPU, which reads quantised weights"};
        request.fp16_cache.value = Wish::off;
    }
    return request;
}

/// Reads a size as signed: free memory is far below 2^63.
std::int64_t signed_bytes(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

std::uint64_t host_available(const Request& request, const MachineFacts& machine) {
    if (machine.unified_memory) return 0;
    return request.host_bytes.value.value_or(machine.host_available_bytes);
}

struct Rooms {
    Budgets budgets;
    std::vector<DevicePlan> devices;  // facts and budgets, arenas empty
    HostPlan host;
};

Rooms measure_rooms(const Request& request, const MachineFacts& machine) {
    Rooms rooms;
    for (const DeviceFacts& facts : machine.devices) {
        DevicePlan device;
        device.facts = facts;
        device.vram_bytes = request.vram_bytes.value.value_or(facts.total_bytes);
        device.free_bytes = saturating_sub(device.vram_bytes, facts.overhead_bytes);
        device.reserve_bytes = request.reserve_bytes.value;
        device.budget_bytes = saturating_sub(device.free_bytes, device.reserve_bytes);
        device.arena.name = facts.name;
        rooms.budgets.device_bytes.push_back(device.budget_bytes);
        rooms.budgets.device_room_bytes.push_back(signed_bytes(device.vram_bytes) -
                                                  signed_bytes(facts.overhead_bytes) -
                                                  signed_bytes(device.reserve_bytes));
        rooms.devices.push_back(std::move(device));
    }
    rooms.host.arena.name = "host";
    rooms.host.available_bytes = host_available(request, machine);
    rooms.host.available_source = request.host_bytes.value ? "--host-mem" : machine.host_source;
    rooms.host.budget_bytes = rooms.host.available_bytes / 100 * request.host_percent.value +
                              rooms.host.available_bytes % 100 * request.host_percent.value / 100;
    rooms.budgets.host_bytes = rooms.host.budget_bytes;
    rooms.budgets.nvme = request.nvme.value != "off" && request.spill.value;
    return rooms;
}

Verdict verdict_of(const Plan& plan, const Request& request) {
    const Grant& grant = plan.grant;
    if (plan.experts_on_devices() < plan.experts_total || grant.head_streamed ||
        grant.dense_streamed_layers > 0)
        return Verdict::spilled;
    const bool mtp_lost = request.mtp.value != Wish::off && !grant.mtp;
    const bool context_lost =
        !request.context_is_max.value && grant.context_tokens < request.context.value.target;
    const bool chunk_lost = request.prefill_chunk.source != Source::by_default &&
                            grant.chunk_tokens < request.prefill_chunk.value.target;
    return mtp_lost || context_lost || chunk_lost ? Verdict::degraded : Verdict::full;
}

ModelRef ref_of(const Model& model) { return {model.name, model.path, model.fingerprint}; }

/// Everything but suggestions. `request` is effective.
Plan plan_once(const Footprint& footprint, const Request& request) {
    const Model& model = footprint.model();
    Rooms rooms = measure_rooms(request, footprint.machine());
    const Climb found = climb(footprint, request, rooms.budgets);
    Plan plan;
    plan.model = ref_of(model);
    if (footprint.mtp() != nullptr) plan.mtp_model = ref_of(*footprint.mtp());
    plan.n_layers = model.hyper.n_layers;
    plan.experts_total = footprint.experts_total();
    plan.machine_name = footprint.machine().name;
    plan.unified_memory = footprint.machine().unified_memory;
    plan.grant = found.division.grant;
    plan.devices = std::move(rooms.devices);
    plan.host = std::move(rooms.host);
    plan.sampling = request.sampling;
    plan.notes = describe_settings(request, footprint.machine());
    if (!found.fits) {
        plan.refusal = Refusal{
            .pool = found.pool, .short_bytes = found.short_bytes, .floor_bytes = found.floor_bytes};
        for (std::size_t device = 0; device < plan.devices.size(); ++device) {
            plan.devices[device].layer_first = found.division.devices[device].layer_first;
            plan.devices[device].layer_last = found.division.devices[device].layer_last;
        }
        plan.features = describe_features(footprint, request, found.division, plan);
        return plan;
    }
    carve(plan, footprint, found.division);
    plan.predicted = predict(footprint, found.division);
    plan.verdict = verdict_of(plan, request);
    plan.features = describe_features(footprint, request, found.division, plan);
    for (std::string& gap : describe_gaps(footprint, found.division, plan))
        plan.notes.push_back(std::move(gap));
    return plan;
}

/// Names what cannot be given up, for the refusal's reason.
std::string required_features(const Request& request) {
    std::vector<std::string> names;
    const auto add = [&](const Setting<Wish>& wish, std::string name) {
        if (wish.value == Wish::require) names.push_back(std::move(name));
    };
    add(request.context_wish,
        fmt::format("context {}", format_count(request.context.value.target)));
    add(request.prefill_chunk_wish,
        fmt::format("prefill chunk {}", format_count(request.prefill_chunk.value.target)));
    add(request.mtp, "mtp");
    add(request.fp16_cache, "full fp16 cache");
    add(request.embedding_wish, request.embedding.value == Placement::host
                                    ? "embedding on the host"
                                    : "embedding on the device");
    if (request.experts.value != Placement::host)
        add(request.experts_wish, "experts on the device");
    if (!request.spill.value) names.push_back("no spill");
    if (names.empty()) return "the smallest plan there is";
    return fmt::format("required: {}", fmt::join(names, ", "));
}

/// A change to a request that might cure a refusal.
struct Cure {
    std::string text;
    std::string option;
    Request request;
};

/// What is short goes to the host instead, in whole GiB.
Cure more_host_memory(const Request& request, const Refusal& refusal, const Plan& plan) {
    // A percent of the budget's shortage is rounded up, so that the cure is enough.
    const std::uint64_t percent = std::max<std::uint64_t>(1, request.host_percent.value);
    const std::uint64_t more = ceil_div(refusal.short_bytes, percent) * 100 + 100;
    const std::uint64_t wanted = align_up(plan.host.available_bytes + more, kGiB);
    Cure cure{fmt::format("give {} of host memory", format_mib(wanted)),
              fmt::format("--host-mem {}GiB", wanted / kGiB), request};
    cure.request.host_bytes.value = wanted;
    return cure;
}

std::vector<Cure> possible_cures(const Request& request, const Refusal& refusal, const Plan& plan) {
    std::vector<Cure> cures;
    const auto relax = [&](Setting<Wish> Request::*wish, std::string text, std::string option) {
        if ((request.*wish).value != Wish::require) return;
        Cure cure{std::move(text), std::move(option), request};
        (cure.request.*wish).value = Wish::prefer;
        cures.push_back(std::move(cure));
    };
    relax(&Request::fp16_cache, "let the fp16 cache shrink", "drop --require fp16_cache");
    relax(&Request::prefill_chunk_wish, "let the prefill chunk shrink",
          "drop the fixed prefill chunk");
    relax(&Request::embedding_wish, "let the embedding move to the host",
          "drop --require embedding");
    relax(&Request::mtp, "let MTP go", "drop --require mtp");
    relax(&Request::experts_wish, "let experts spill", "drop --require experts");
    if (!request.spill.value) {
        Cure cure{"let experts spill", "spill: true", request};
        cure.request.spill.value = true;
        cures.push_back(std::move(cure));
    }
    for (std::uint64_t tokens = 1ull << 20; tokens >= kContextTokensMin; tokens /= 2) {
        if (request.context_wish.value != Wish::require || tokens >= request.context.value.target)
            continue;
        Cure cure{fmt::format("lower context to {} tokens", format_count(tokens)),
                  fmt::format("--ctx {}", tokens), request};
        cure.request.context.value = {.target = tokens, .minimum = tokens};
        cures.push_back(std::move(cure));
    }
    const bool has_host_tier = plan.host.available_bytes != 0;
    if (has_host_tier) cures.push_back(more_host_memory(request, refusal, plan));
    if (refusal.pool != "host" && refusal.pool != "experts on devices") {
        std::uint64_t vram = 0;
        for (const DevicePlan& device : plan.devices)
            if (device.facts.name == refusal.pool) vram = device.vram_bytes;
        const std::uint64_t wanted = align_up(vram + refusal.short_bytes, kMiB);
        Cure cure{fmt::format("free {} more on {}", format_mib(align_up(refusal.short_bytes, kMiB)),
                              refusal.pool),
                  fmt::format("--vram {}MiB", wanted / kMiB), request};
        cure.request.vram_bytes.value = wanted;
        cures.push_back(std::move(cure));
    }
    if (request.nvme.value == "off") {
        Cure cure{"let experts stay in the file", "drop --nvme off", request};
        cure.request.nvme.value = "allow";
        cures.push_back(std::move(cure));
    }
    return cures;
}

/// Suggestions that work, each proved by planning it; of the contexts only the largest.
void suggest(Plan& plan, const Footprint& footprint, const Request& request) {
    Refusal& refusal = *plan.refusal;
    refusal.reason = required_features(request);
    bool context_found = false;
    for (Cure& cure : possible_cures(request, refusal, plan)) {
        const bool is_context = cure.option.starts_with("--ctx");
        if (is_context && context_found) continue;
        const Plan cured = plan_once(footprint, cure.request);
        if (cured.refusal) continue;
        context_found = context_found || is_context;
        refusal.suggestions.push_back(
            {std::move(cure.text), std::move(cure.option), cured.verdict});
    }
}

/// The plan at the largest context for which there is one. Best effort stops where dense weights
/// would have to be streamed; whoever asks for the maximum means the maximum.
Plan plan_at_largest_context(const Footprint& footprint, const Request& request) {
    Plan best = plan_once(footprint, request);
    const std::uint64_t trained = request.context.value.target;
    if (best.refusal || best.grant.context_tokens == trained) return best;
    std::uint64_t low = best.grant.context_tokens / kContextStepTokens;
    std::uint64_t high = ceil_div(trained, kContextStepTokens);  // more than fits, or all of it
    Request at = request;
    at.context_wish.value = Wish::require;
    const auto try_steps = [&](std::uint64_t steps) {
        at.context.value.target = std::min(steps * kContextStepTokens, trained);
        Plan plan = plan_once(footprint, at);
        const bool fits = !plan.refusal;
        if (fits) best = std::move(plan);
        return fits;
    };
    if (try_steps(high)) return best;
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (try_steps(middle) ? low : high) = middle;
    }
    return best;
}

/// A draft head runs on the main model's streams, cache rows and vocabulary: their shapes must be
/// the same.
Status check_draft_head(const Model& model, const Model& mtp) {
    for (const HyperField& field : hyper_fields()) {
        const auto* member = std::get_if<std::uint32_t Hyperparameters::*>(&field.member);
        if (!field.in_mtp || member == nullptr) continue;
        const std::uint32_t own = mtp.hyper.*(*member), main = model.hyper.*(*member);
        if (own != main)
            return Error{ErrorKind::usage,
                         fmt::format("draft head {} does not belong to {}: {} is {} and {}",
                                     mtp.name, model.name, field.config_key, own, main)};
    }
    return ok_status();
}

Status check_machine(const Model& model, const Model* mtp, const MachineFacts& machine) {
    if (machine.devices.empty())
        return Error{ErrorKind::usage, fmt::format("{} has no device", machine.name)};
    if (machine.devices.size() > model.hyper.n_layers)
        return Error{ErrorKind::usage,
                     fmt::format("{} devices for {} layers: each device needs a layer",
                                 machine.devices.size(), model.hyper.n_layers)};
    if (model.kind != ModelKind::main)
        return Error{ErrorKind::usage,
                     fmt::format("{} is a draft head; name it with --mtp", model.name)};
    if (mtp != nullptr && mtp->kind != ModelKind::mtp)
        return Error{ErrorKind::usage, fmt::format("{} is not a draft head", mtp->name)};
    return mtp != nullptr ? check_draft_head(model, *mtp) : ok_status();
}

}  // namespace

Result<Plan> make_plan(const Model& model, const Model* mtp, const MachineFacts& machine,
                       const Request& request) {
    if (const Status checked = check_machine(model, mtp, machine); !checked) return checked.error();
    const Result<Request> effective = effective_request(request, model, mtp, machine);
    if (!effective) return effective.error();
    const Model* draft_head = effective->mtp.value == Wish::off ? nullptr : mtp;
    const Footprint footprint(model, draft_head, machine);
    Plan plan = effective->context_is_max.value ? plan_at_largest_context(footprint, *effective)
                                                : plan_once(footprint, *effective);
    if (plan.refusal) suggest(plan, footprint, *effective);
    return plan;
}

Schedule schedule_of(const Plan& plan, std::size_t device, const Model& model, const Model* mtp) {
    const Grant& grant = plan.grant;
    const DevicePlan& place = plan.devices[device];
    const bool is_gpu = place.facts.architecture != "cpu";
    const ScheduleShape shape{.is_gpu = is_gpu,
                              .context_tokens = grant.context_tokens,
                              .tokens = std::max(grant.chunk_tokens, 1 + grant.drafts),
                              .logits_rows = 1 + grant.drafts,
                              .quantized_activations = !grant.precise,
                              .first_device = device == 0,
                              .last_device = device + 1 == plan.devices.size(),
                              .layer_first = place.layer_first,
                              .layer_last = place.layer_last};
    return build_schedule(model, grant.mtp ? mtp : nullptr, shape);
}

const Region* Arena::find(RegionKind kind, std::int32_t layer) const {
    for (const Region& region : regions)
        if (region.kind == kind && region.layer == layer) return &region;
    return nullptr;
}

}  // namespace plimsoll
