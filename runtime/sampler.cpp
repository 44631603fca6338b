#include "runtime/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/check.hpp"

namespace plimsoll {

Result<TokenId> most_likely(std::span<const float> logits) {
    PLIMSOLL_CHECK(!logits.empty(), "no logits");
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (!std::isfinite(logits[i])) {
            return Error{ErrorKind::internal, fmt::format("the logit of token {} of {} is {}", i,
                                                          logits.size(), logits[i])};
        }
        if (logits[i] > logits[best]) best = i;
    }
    return static_cast<TokenId>(best);
}

Sampler::Sampler(const SamplingOptions& options, std::uint32_t vocab_size)
    : options_(options), vocab_size_(vocab_size), random_(options.seed) {
    candidates_.reserve(vocab_size);
}

Result<Sampler> Sampler::create(const SamplingOptions& options, std::uint32_t vocab_size) {
    PLIMSOLL_CHECK(vocab_size > 0, "no vocabulary");
    struct Range {
        const char* name;
        float value;
        bool ok;  // false for NaN too
        const char* range;
    };
    const Range ranges[] = {
        {"temperature", options.temperature,
         options.temperature >= 0 && std::isfinite(options.temperature), "0 or more"},
        {"top-p", options.top_p, options.top_p > 0 && options.top_p <= 1, "above 0 and at most 1"},
        {"min-p", options.min_p, options.min_p >= 0 && options.min_p <= 1, "from 0 to 1"},
    };
    for (const Range& range : ranges) {
        if (!range.ok) {
            return Error{ErrorKind::usage,
                         fmt::format("{} is {}, must be {}", range.name, range.value, range.range)};
        }
    }
    return Sampler(options, vocab_size);
}

Result<TokenId> Sampler::sample(std::span<const float> logits) {
    PLIMSOLL_CHECK(logits.size() == vocab_size_,
                   fmt::format("{} logits for {} tokens", logits.size(), vocab_size_));
    Result<TokenId> best = most_likely(logits);
    if (!best || options_.temperature == 0) return best;

    const double largest = logits[static_cast<std::size_t>(*best)];
    const double temperature = options_.temperature;
    candidates_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        candidates_.push_back({.logit = logits[i],
                               .id = static_cast<TokenId>(i),
                               .weight = std::exp((logits[i] - largest) / temperature)});
    }
    keep_top_k();
    keep_min_p();
    keep_top_p();
    return draw();
}

bool Sampler::less_likely(const Candidate& a, const Candidate& b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

void Sampler::keep_top_k() {
    if (options_.top_k == 0 || options_.top_k >= candidates_.size()) return;
    const auto more_likely = [](const Candidate& a, const Candidate& b) {
        return less_likely(b, a);
    };
    const auto end = candidates_.begin() + options_.top_k;
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), more_likely);
    candidates_.erase(end, candidates_.end());
    std::sort(candidates_.begin(), candidates_.end(), more_likely);
}

void Sampler::keep_min_p() {
    // The most likely token has weight 1.
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
}

void Sampler::keep_top_p() {
    if (options_.top_p >= 1) return;
    double sum = 0;
    for (const Candidate& candidate : candidates_) sum += candidate.weight;
    // A heap, because the few tokens that reach the share are found long before all are sorted.
    // pop_heap gathers them at the end, in rising order.
    std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
    auto first_kept = candidates_.end();
    double kept = 0;
    while (first_kept != candidates_.begin() && kept < options_.top_p * sum) {
        std::pop_heap(candidates_.begin(), first_kept, less_likely);
        --first_kept;
        kept += first_kept->weight;
    }
    candidates_.erase(candidates_.begin(), first_kept);
    std::reverse(candidates_.begin(), candidates_.end());
}

TokenId Sampler::draw() {
    double sum = 0;
    for (const Candidate& candidate : candidates_) sum += candidate.weight;
    const double target = random_.uniform() * sum;
    double reached = 0;
    TokenId chosen = 0;
    for (const Candidate& candidate : candidates_) {
        if (candidate.weight == 0) continue;
        chosen = candidate.id;
        reached += candidate.weight;
        if (reached > target) break;
    }
    return chosen;
}

}  // namespace plimsoll
