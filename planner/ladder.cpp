#include "planner/ladder.hpp"

#include <algorithm>
#include <optional>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

/// The largest value in [low, high] for which `fits` holds, where it holds for low and is monotone.
template <class Fits>
std::uint64_t largest(std::uint64_t low, std::uint64_t high, Fits&& fits) {
    while (low < high) {
        const std::uint64_t middle = low + (high - low + 1) / 2;
        if (fits(middle))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/// Chunk sizes between a minimum and a target: both, and the powers of two between.
std::vector<std::uint64_t> chunk_levels(const Range& range) {
    std::vector<std::uint64_t> levels{range.minimum};
    for (std::uint64_t tokens = 1; tokens < range.target; tokens *= 2)
        if (tokens > range.minimum) levels.push_back(tokens);
    if (range.target > range.minimum) levels.push_back(range.target);
    return levels;
}

bool is_required(const Setting<Wish>& wish) { return wish.value == Wish::require; }

/// One climb with the layers split among the devices in one way.
class Climber {
public:
    Climber(const Footprint& footprint, const Request& request, const Budgets& budgets)
        : footprint_(footprint),
          request_(request),
          budgets_(budgets),
          hyper_(footprint.model().hyper) {
        if (is_required(request.prefill_chunk_wish))
            levels_ = {request.prefill_chunk.value.target};
        else
            levels_ = chunk_levels(request.prefill_chunk.value);
    }

    Climb run(const std::vector<DeviceShare>& shares) {
        now_ = floor_division(shares);
        if (!fits(now_)) return misfit();
        const std::vector<Step>& ladder = request_.ladder.value;
        for (auto step = ladder.rbegin(); step != ladder.rend(); ++step) take_back(*step);
        now_ = settled(now_);
        place_host_experts();
        Climb out;
        out.fits = true;
        out.division = now_;
        return out;
    }

private:
    const Footprint& footprint_;
    const Request& request_;
    const Budgets& budgets_;
    const Hyperparameters& hyper_;
    std::vector<std::uint64_t> levels_;
    Division now_;

    /// Everything given up that may be. What is given to the host is limited by what the host can
    /// hold.
    [[nodiscard]] Division floor_division(const std::vector<DeviceShare>& shares) const {
        Division floor{.devices = shares};
        Grant& grant = floor.grant;
        grant.sessions = request_.sessions.value;
        grant.kv_format = request_.kv_format.value;
        grant.rounding = request_.rounding.value;
        grant.precise = request_.precise.value;
        grant.context_tokens = is_required(request_.context_wish) ? request_.context.value.target
                                                                  : request_.context.value.minimum;
        grant.chunk_tokens = levels_.front();
        grant.mtp = footprint_.mtp() != nullptr && is_required(request_.mtp);
        grant.drafts = grant.mtp ? request_.drafts.value : 0;
        for (DeviceShare& share : floor.devices) {
            share.experts = experts_stay() ? footprint_.experts_of(share) : 0;
            share.fp16_tensors =
                is_required(request_.fp16_cache) ? footprint_.fp16_candidates_of(share).size() : 0;
        }
        give_to_host(floor);
        return floor;
    }

    [[nodiscard]] bool experts_stay() const {
        return !request_.spill.value ||
               (request_.experts.value == Placement::device && is_required(request_.experts_wish));
    }

    /// Dense weights are the last to go. Neither experts nor a cache of copies that the user
    /// insists on push them out: every token would wait for them.
    [[nodiscard]] bool dense_stays() const {
        return experts_stay() || is_required(request_.fp16_cache);
    }

    /// Embedding, output head, then dense layers: whatever of these the host has room for.
    void give_to_host(Division& division) const {
        Grant& grant = division.grant;
        const auto host_fits = [&] {
            return footprint_.host_bytes(division) <= budgets_.host_bytes;
        };
        const bool embedding_stays =
            request_.embedding.value == Placement::device && is_required(request_.embedding_wish);
        grant.embedding_on_host = !embedding_stays;
        // A user who wants the embedding on the host gets a refusal, not a silent move, where it
        // has no room.
        if (!host_fits() && request_.embedding.value != Placement::host)
            grant.embedding_on_host = false;
        if (dense_stays()) return;
        grant.head_streamed = true;
        if (!host_fits()) {
            grant.head_streamed = false;
            return;
        }
        grant.dense_streamed_layers =
            static_cast<std::uint32_t>(largest(0, hyper_.n_layers, [&](std::uint64_t layers) {
                grant.dense_streamed_layers = static_cast<std::uint32_t>(layers);
                return host_fits();
            }));
    }

    /// Without an NVMe tier the devices hold at least the experts for which the host has no room.
    [[nodiscard]] Division settled(Division division) const {
        if (budgets_.nvme) return division;
        std::uint64_t wanted = 0;
        for (const DeviceShare& share : division.devices) wanted += share.experts;
        const std::uint64_t total = footprint_.experts_total();
        const std::uint64_t host = host_capacity(division, total - wanted);
        std::uint64_t missing = total - wanted - host;
        for (DeviceShare& share : division.devices) {
            const std::uint64_t more =
                std::min(missing, footprint_.experts_of(share) - share.experts);
            share.experts += more;
            missing -= more;
        }
        return division;
    }

    /// How many of `count` experts the host can hold beside what else the division puts there.
    [[nodiscard]] std::uint64_t host_capacity(Division division, std::uint64_t count) const {
        return largest(0, count, [&](std::uint64_t experts) {
            division.host_experts = experts;
            return footprint_.host_bytes(division) <= budgets_.host_bytes;
        });
    }

    void place_host_experts() {
        std::uint64_t on_devices = 0;
        for (const DeviceShare& share : now_.devices) on_devices += share.experts;
        now_.host_experts = host_capacity(now_, footprint_.experts_total() - on_devices);
    }

    [[nodiscard]] std::uint64_t expert_bytes(const Division& division) const {
        std::uint64_t sum = 0;
        for (std::size_t device = 0; device < division.devices.size(); ++device)
            sum += footprint_.device_expert_bytes(division, device);
        return sum;
    }

    [[nodiscard]] bool fits(const Division& wanted) const {
        const Division division = settled(wanted);
        if (footprint_.host_bytes(division) > budgets_.host_bytes) return false;
        const auto& cap = request_.experts_device_max_bytes.value;
        if (cap && expert_bytes(division) > *cap) return false;
        for (std::size_t device = 0; device < division.devices.size(); ++device)
            if (footprint_.device_bytes(division, device) > budgets_.device_bytes[device])
                return false;
        return true;
    }

    [[nodiscard]] Climb misfit() const {
        Climb out;
        out.division = settled(now_);
        const auto consider = [&](std::string pool, std::uint64_t need, std::int64_t room) {
            const std::int64_t short_bytes = static_cast<std::int64_t>(need) - room;
            if (short_bytes <= static_cast<std::int64_t>(out.short_bytes)) return;
            out.pool = std::move(pool);
            out.short_bytes = static_cast<std::uint64_t>(short_bytes);
            out.floor_bytes = need;
        };
        for (std::size_t device = 0; device < out.division.devices.size(); ++device)
            consider(footprint_.machine().devices[device].name,
                     footprint_.device_bytes(out.division, device),
                     budgets_.device_room_bytes[device]);
        consider("host", footprint_.host_bytes(out.division),
                 static_cast<std::int64_t>(budgets_.host_bytes));
        if (const auto& cap = request_.experts_device_max_bytes.value)
            consider("experts on devices", expert_bytes(out.division),
                     static_cast<std::int64_t>(*cap));
        return out;
    }

    /// Applies `change` to the division where the result fits.
    template <class Change>
    bool try_change(Change&& change) {
        Division next = now_;
        change(next);
        if (!fits(next)) return false;
        now_ = std::move(next);
        return true;
    }

    /// Raises a number as far as it fits, from a value that fits.
    template <class Set>
    void raise(std::uint64_t low, std::uint64_t high, Set&& set) {
        Division next = now_;
        const std::uint64_t best = largest(low, high, [&](std::uint64_t value) {
            set(next, value);
            return fits(next);
        });
        set(now_, best);
    }

    void take_back(Step step) {
        switch (step) {
            case Step::dense_layers: take_back_dense_layers(); break;
            case Step::output_head:
                try_change([](Division& next) { next.grant.head_streamed = false; });
                break;
            case Step::context: take_back_context(); break;
            case Step::prefill_chunk_min: take_back_chunk(kChunkTokensBase); break;
            case Step::experts: take_back_experts(); break;
            case Step::mtp: take_back_mtp(); break;
            case Step::embedding:
                if (request_.embedding.value != Placement::host)
                    try_change([](Division& next) { next.grant.embedding_on_host = false; });
                break;
            case Step::prefill_chunk: take_back_chunk(~0ull); break;
            case Step::fp16_cache: take_back_fp16(); break;
        }
    }

    void take_back_dense_layers() {
        const std::uint64_t streamed = now_.grant.dense_streamed_layers;
        raise(0, streamed, [&](Division& next, std::uint64_t resident) {
            next.grant.dense_streamed_layers = static_cast<std::uint32_t>(streamed - resident);
        });
    }

    void take_back_context() {
        const Range& range = request_.context.value;
        const std::uint64_t low = now_.grant.context_tokens;
        const std::uint64_t steps = ceil_div(range.target - low, kContextStepTokens);
        raise(0, steps, [&](Division& next, std::uint64_t step) {
            next.grant.context_tokens = std::min(range.target, low + step * kContextStepTokens);
        });
    }

    void take_back_chunk(std::uint64_t tokens_max) {
        for (const std::uint64_t tokens : levels_) {
            if (tokens <= now_.grant.chunk_tokens) continue;
            if (tokens > tokens_max) break;
            if (!try_change([&](Division& next) { next.grant.chunk_tokens = tokens; })) break;
        }
    }

    void take_back_experts() {
        if (request_.experts.value == Placement::host) return;
        const auto all = [&](Division& next) {
            for (DeviceShare& share : next.devices) share.experts = footprint_.experts_of(share);
        };
        if (try_change(all)) return;
        // Experts will be streamed, and a larger chunk shares each of them among more tokens. While
        // the target is out of reach no expert is taken back either: just above this budget it will
        // be, at their expense, and more memory would mean fewer experts.
        take_back_chunk(~0ull);
        const std::uint64_t chunk = now_.grant.chunk_tokens;
        if (chunk < levels_.back() && chunk >= std::min(kChunkTokensBase, levels_.back())) return;
        for (std::size_t device = 0; device < now_.devices.size(); ++device)
            raise(now_.devices[device].experts, footprint_.experts_of(now_.devices[device]),
                  [&](Division& next, std::uint64_t experts) {
                      next.devices[device].experts = experts;
                  });
    }

    void take_back_mtp() {
        if (footprint_.mtp() == nullptr || request_.mtp.value == Wish::off) return;
        try_change([&](Division& next) {
            next.grant.mtp = true;
            next.grant.drafts = request_.drafts.value;
        });
    }

    void take_back_fp16() {
        if (request_.fp16_cache.value == Wish::off) return;
        for (std::size_t device = 0; device < now_.devices.size(); ++device) {
            const std::vector<Fp16Candidate> candidates =
                footprint_.fp16_candidates_of(now_.devices[device]);
            std::uint64_t low = now_.devices[device].fp16_tensors;
            std::uint64_t high = candidates.size();
            if (const auto& cap = request_.fp16_cache_max_bytes.value) {
                high = 0;
                for (std::uint64_t bytes = 0; high < candidates.size(); ++high) {
                    bytes += candidates[high].size_bytes;
                    if (bytes > *cap) break;
                }
                low = std::min(low, high);
            }
            raise(low, high, [&](Division& next, std::uint64_t tensors) {
                next.devices[device].fp16_tensors = tensors;
            });
        }
    }
};

/// Boundaries that give each device layers in proportion to its budget.
std::vector<std::uint32_t> proportional_cuts(const Footprint& footprint, const Budgets& budgets) {
    const std::uint32_t n_layers = footprint.model().hyper.n_layers;
    const std::size_t n_devices = budgets.device_bytes.size();
    double budget_sum = 0;
    for (const std::uint64_t bytes : budgets.device_bytes) budget_sum += static_cast<double>(bytes);
    std::vector<std::uint32_t> cuts;
    double budget_so_far = 0;
    for (std::size_t device = 0; device + 1 < n_devices; ++device) {
        budget_so_far += static_cast<double>(budgets.device_bytes[device]);
        const double share = budget_sum > 0
                                 ? budget_so_far / budget_sum
                                 : static_cast<double>(device + 1) / static_cast<double>(n_devices);
        const auto cut = static_cast<std::uint32_t>(share * n_layers + 0.5);
        const std::uint32_t low = cuts.empty() ? 1 : cuts.back() + 1;
        const auto high = static_cast<std::uint32_t>(n_layers - (n_devices - 1 - device));
        cuts.push_back(std::clamp(cut, low, std::max(low, high)));
    }
    return cuts;
}

std::vector<DeviceShare> shares_of(const std::vector<std::uint32_t>& cuts, std::uint32_t n_layers) {
    std::vector<DeviceShare> shares;
    std::uint32_t first = 0;
    for (const std::uint32_t cut : cuts) {
        shares.push_back({.layer_first = first, .layer_last = cut});
        first = cut;
    }
    shares.push_back({.layer_first = first, .layer_last = n_layers});
    return shares;
}

bool is_better(const Footprint& footprint, const Climb& a, const Climb& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.short_bytes < b.short_bytes;
    return rank_of(footprint, a.division) > rank_of(footprint, b.division);
}

/// Two devices: every boundary is tried, so that more memory can only add choices. More devices:
/// boundaries move one at a time from the proportional split while that helps.
Climb best_split(const Footprint& footprint, const Budgets& budgets, Climber& climber) {
    const std::uint32_t n_layers = footprint.model().hyper.n_layers;
    std::vector<std::uint32_t> cuts = proportional_cuts(footprint, budgets);
    Climb best = climber.run(shares_of(cuts, n_layers));
    const auto consider = [&](const std::vector<std::uint32_t>& candidate) {
        Climb other = climber.run(shares_of(candidate, n_layers));
        if (!is_better(footprint, other, best)) return false;
        best = std::move(other);
        return true;
    };
    if (cuts.size() == 1) {
        for (std::uint32_t cut = 1; cut < n_layers; ++cut) consider({cut});
        return best;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t index = 0; index < cuts.size(); ++index) {
            const std::uint32_t low = index == 0 ? 0 : cuts[index - 1];
            const std::uint32_t high = index + 1 == cuts.size() ? n_layers : cuts[index + 1];
            for (const int step : {-1, 1}) {
                std::vector<std::uint32_t> next = cuts;
                next[index] = static_cast<std::uint32_t>(static_cast<int>(next[index]) + step);
                if (next[index] <= low || next[index] >= high || !consider(next)) continue;
                cuts = next;
                moved = true;
            }
        }
    }
    return best;
}

}  // namespace

Climb climb(const Footprint& footprint, const Request& request, const Budgets& budgets) {
    Climber climber(footprint, request, budgets);
    if (budgets.device_bytes.size() == 1)
        return climber.run(shares_of({}, footprint.model().hyper.n_layers));
    return best_split(footprint, budgets, climber);
}

Rank rank_of(const Footprint& footprint, const Division& division) {
    const Grant& grant = division.grant;
    std::uint64_t dense_bytes = grant.head_streamed ? 0 : 1;
    for (std::uint32_t layer = grant.dense_streamed_layers;
         layer < footprint.model().hyper.n_layers; ++layer)
        dense_bytes += footprint.layer_dense_bytes(layer);
    std::uint64_t experts = 0;
    std::uint64_t fp16_bytes = 0;
    for (const DeviceShare& share : division.devices) {
        experts += share.experts;
        const std::vector<Fp16Candidate> candidates = footprint.fp16_candidates_of(share);
        for (std::uint64_t index = 0; index < share.fp16_tensors; ++index)
            fp16_bytes += candidates[index].size_bytes;
    }
    return {dense_bytes,
            grant.context_tokens,
            std::min(grant.chunk_tokens, kChunkTokensBase),
            experts,
            grant.mtp ? 1ull : 0ull,
            grant.embedding_on_host ? 0ull : 1ull,
            grant.chunk_tokens,
            fp16_bytes};
}

}  // namespace plimsoll
