#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/result.hpp"
#include "runtime/random.hpp"
#include "runtime/token_id.hpp"

namespace plimsoll {

/// How the next token is chosen. The defaults draw from the model's own distribution.
struct SamplingOptions {
    float temperature = 1;    // 0 takes the most likely token and draws nothing
    std::uint32_t top_k = 0;  // keep this many of the most likely tokens; 0 keeps all
    float top_p = 1;          // in (0, 1]: keep the fewest tokens that reach this share
    float min_p = 0;  // in [0, 1]: drop tokens less likely than this share of the most likely one
    std::uint64_t seed = 0;  // of the generator; 0 is a seed like any other

    bool operator==(const SamplingOptions&) const = default;
};

/// Lowest id among the largest logits, or an error where one is not finite. `logits` [vocab], not
/// empty.
[[nodiscard]] Result<TokenId> most_likely(std::span<const float> logits);

/// Draws tokens. Allocates when made and never again.
///
/// Order of operations: p ∝ exp((logit − largest) / temperature); top-k; min-p; top-p, whose share
/// is of what the first two left; one uniform number, by inverse transform over the kept tokens.
/// They are in id order where neither top-k nor top-p is on, else by falling logit and rising id.
class Sampler {
public:
    /// Refuses options out of range. `vocab_size` > 0.
    [[nodiscard]] static Result<Sampler> create(const SamplingOptions& options,
                                                std::uint32_t vocab_size);

    /// Whether it takes the most likely token and draws nothing.
    [[nodiscard]] bool is_greedy() const { return options_.temperature == 0; }

    /// The next token. `logits` [vocab] f32. An error, kind internal, where a logit is NaN or
    /// infinite; it draws nothing.
    [[nodiscard]] Result<TokenId> sample(std::span<const float> logits);

private:
    struct Candidate {
        float logit = 0;
        TokenId id = 0;
        double weight = 0;  // exp((logit - largest) / temperature)
    };

    Sampler(const SamplingOptions& options, std::uint32_t vocab_size);

    static bool less_likely(const Candidate& a, const Candidate& b);
    void keep_top_k();
    void keep_min_p();
    void keep_top_p();
    [[nodiscard]] TokenId draw();

    SamplingOptions options_;
    std::uint32_t vocab_size_;
    Random random_;
    std::vector<Candidate> candidates_;  // capacity [vocab]
};

}  // namespace plimsoll
