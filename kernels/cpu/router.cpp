#include <algorithm>
#include <cmath>

#include "kernels/check.hpp"
#include "kernels/cpu/tile.hpp"
#include "kernels/ops.hpp"

namespace plimsoll::kernels::cpu {
namespace {

constexpr std::uint32_t kExpertsMax = 1024;
constexpr float kWeightSumMin = 0x1p-14f;

/// sqrt(log(1 + e^x)), with the tails where float32 leaves only one of the terms.
float affinity(float logit) {
    float softplus = logit;
    if (logit < -20.0f)
        softplus = std::exp(logit);
    else if (logit <= 20.0f)
        softplus = std::log1p(std::exp(logit));
    return std::sqrt(softplus);
}

/// The k largest scores in descending order, the lower id first among equals. k passes over a few
/// hundred scores cost less than a sort, and any input gives k different ids.
void choose(const float* scores, std::uint32_t n, std::uint32_t k, std::int32_t* ids) {
    bool taken[kExpertsMax] = {};
    for (std::uint32_t slot = 0; slot < k; ++slot) {
        std::uint32_t best = n;
        for (std::uint32_t e = 0; e < n; ++e)
            if (!taken[e] && (best == n || scores[e] > scores[best])) best = e;
        taken[best] = true;
        ids[slot] = static_cast<std::int32_t>(best);
    }
}

void route_token(const RouterParams& params, std::uint64_t t) {
    const std::uint32_t n = params.n_experts;
    const std::uint32_t k = params.n_experts_used;
    const float* logits = params.logits + t * n;
    std::int32_t* ids = params.expert_ids + t * k;
    float* weights = params.expert_weights + t * k;
    if (params.table != nullptr) {
        std::copy_n(params.table + static_cast<std::uint64_t>(params.token_ids[t]) * k, k, ids);
    } else {
        float scores[kExpertsMax];
        for (std::uint32_t e = 0; e < n; ++e)
            scores[e] = affinity(logits[e]) + (params.bias != nullptr ? params.bias[e] : 0.0f);
        choose(scores, n, k, ids);
    }
    float sum = 0.0f;
    for (std::uint32_t slot = 0; slot < k; ++slot) {
        PLIMSOLL_KERNEL_CHECK(static_cast<std::uint32_t>(ids[slot]) < n,
                              "hash table names no such expert");
        weights[slot] = affinity(logits[ids[slot]]);
        sum += weights[slot];
    }
    const float floored = std::max(sum, kWeightSumMin);
    for (std::uint32_t slot = 0; slot < k; ++slot)
        weights[slot] = params.weights_scale * weights[slot] / floored;
}

}  // namespace

void route(const RouterParams& params, const Workers& workers) {
    PLIMSOLL_KERNEL_CHECK(params.n_experts <= kExpertsMax, "more experts than supported");
    PLIMSOLL_KERNEL_CHECK(params.n_experts_used <= params.n_experts,
                          "more experts used than there are");
    workers.parallel_for(params.n_tokens, rows_for_elements(std::uint64_t{16} * params.n_experts),
                         [&](std::uint64_t first, std::uint64_t last) {
                             for (std::uint64_t t = first; t < last; ++t) route_token(params, t);
                         });
}

void group_by_expert(const GroupByExpertParams& params) {
    const std::uint64_t n = std::uint64_t{params.n_tokens} * params.n_experts_used;
    std::int32_t* offsets = params.expert_offsets;
    std::fill_n(offsets, params.n_experts + 1, 0);
    for (std::uint64_t a = 0; a < n; ++a) {
        const auto expert = static_cast<std::uint32_t>(params.expert_ids[a]);
        PLIMSOLL_KERNEL_CHECK(expert < params.n_experts, "assignment to no such expert");
        ++offsets[expert + 1];
    }
    for (std::uint32_t e = 0; e < params.n_experts; ++e) offsets[e + 1] += offsets[e];
    // offsets[e] serves as the cursor of expert e and ends up where e + 1 starts; then it is moved
    // back.
    for (std::uint64_t a = 0; a < n; ++a)
        params.assignments[offsets[params.expert_ids[a]]++] = static_cast<std::int32_t>(a);
    for (std::uint32_t e = params.n_experts; e > 0; --e) offsets[e] = offsets[e - 1];
    offsets[0] = 0;
}

std::int32_t argmax(const float* logits, std::uint32_t n) {
    return static_cast<std::int32_t>(std::max_element(logits, logits + n) - logits);
}

}  // namespace plimsoll::kernels::cpu
