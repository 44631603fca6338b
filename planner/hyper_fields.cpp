#include "planner/hyper_fields.hpp"

#include <fmt/format.h>

#include <cmath>

#include "planner/units.hpp"

namespace plimsoll {
namespace {

using H = Hyperparameters;

// Limits: 2^10 layers x 3 x (2^17 x 2^17 x 2^12 expert elements x 4 bytes) < 2^61.
constexpr double kWidthMax = 1 << 17;
constexpr double kTokensMax = 1u << 30;
constexpr double kFloatMax = 1e12;
constexpr double kTiny = 1e-30;

// clang-format off
constexpr HyperField kFields[] = {
    // in configs and cases          GGUF key                                   member                           min    max        mtp    wide
    {"block_count",                  "block_count",                             &H::n_layers,                    1,     1 << 10,   false, false},
    {"embedding_length",             "embedding_length",                        &H::hidden_size,                 1,     kWidthMax, true,  false},
    {"vocab_size",                   "vocab_size",                              &H::vocab_size,                  1,     1 << 24,   false, false},
    {"head_count",                   "attention.head_count",                    &H::n_heads,                     1,     1 << 12,   true,  false},
    {"key_length",                   "attention.key_length",                    &H::head_dim,                    1,     1 << 14,   true,  false},
    {"rope_dimension_count",         "rope.dimension_count",                    &H::rope_dim,                    2,     1 << 14,   false, false},
    {"q_lora_rank",                  "attention.q_lora_rank",                   &H::q_lora_rank,                 1,     kWidthMax, true,  false},
    {"output_lora_rank",             "attention.output_lora_rank",              &H::output_lora_rank,            1,     kWidthMax, true,  false},
    {"output_group_count",           "attention.output_group_count",            &H::n_output_groups,             1,     1 << 12,   true,  false},
    {"sliding_window",               "attention.sliding_window",                &H::sliding_window_tokens,       1,     1 << 20,   false, false},
    {"indexer_head_count",           "attention.indexer.head_count",            &H::indexer_n_heads,             1,     1 << 12,   false, false},
    {"indexer_key_length",           "attention.indexer.key_length",            &H::indexer_head_dim,            1,     1 << 14,   false, false},
    {"indexer_top_k",                "attention.indexer.top_k",                 &H::indexer_top_k,               1,     1 << 20,   false, false},
    {"expert_count",                 "expert_count",                            &H::n_experts,                   1,     1 << 12,   true,  false},
    {"expert_used_count",            "expert_used_count",                       &H::n_experts_used,              1,     1 << 8,    false, false},
    {"expert_feed_forward_length",   "expert_feed_forward_length",              &H::expert_ff_dim,               1,     kWidthMax, true,  false},
    {"hash_layer_count",             "hash_layer_count",                        &H::n_hash_layers,               0,     1 << 10,   false, false},
    {"hc_count",                     "hyper_connection.count",                  &H::n_streams,                   1,     16,        true,  false},
    {"hc_sinkhorn_iterations",       "hyper_connection.sinkhorn_iterations",    &H::sinkhorn_iterations,         1,     1000,      false, false},
    {"context_length",               "context_length",                          &H::context_length_tokens,       1,     kTokensMax,false, true},
    {"rope_original_context_length", "rope.scaling.original_context_length",    &H::rope_original_context_tokens,1,     kTokensMax,false, true},
    {"expert_weights_scale",         "expert_weights_scale",                    &H::expert_weights_scale,        kTiny, kFloatMax, false, false},
    {"rms_epsilon",                  "attention.layer_norm_rms_epsilon",        &H::rms_epsilon,                 0,     1,         false, false},
    {"hc_epsilon",                   "hyper_connection.epsilon",                &H::hc_epsilon,                  0,     1,         false, false},
    {"rope_freq_base",               "rope.freq_base",                          &H::rope_freq_base,              kTiny, kFloatMax, false, false},
    {"compress_rope_freq_base",      "attention.compress_rope_freq_base",       &H::compress_rope_freq_base,     kTiny, kFloatMax, false, false},
    {"rope_scaling_factor",          "rope.scaling.factor",                     &H::rope_scaling_factor,         kTiny, kFloatMax, false, false},
    {"yarn_beta_fast",               "rope.scaling.yarn_beta_fast",             &H::yarn_beta_fast,              kTiny, kFloatMax, false, false},
    {"yarn_beta_slow",               "rope.scaling.yarn_beta_slow",             &H::yarn_beta_slow,              kTiny, kFloatMax, false, false},
};
// clang-format on

void require(bool holds, std::vector<std::string>& problems, std::string problem) {
    if (!holds) problems.push_back(std::move(problem));
}

void check_layers(const H& h, std::vector<std::string>& problems) {
    bool indexed = false;
    for (std::size_t layer = 0; layer < h.compress_ratios.size(); ++layer) {
        const std::uint32_t ratio = h.compress_ratios[layer];
        indexed = indexed || ratio == 4;
        require(ratio == 0 || ratio == 4 || ratio == 128, problems,
                fmt::format("compress_ratios[{}] is {}, must be 0, 4 or 128", layer, ratio));
    }
    for (std::size_t layer = 0; layer < h.swiglu_clamp.size(); ++layer) {
        const float clamp = h.swiglu_clamp[layer];
        require(std::isfinite(clamp) && clamp > 0, problems,
                fmt::format("swiglu_clamp[{}] is {}, must be finite and above 0", layer, clamp));
    }
    // The indexer rotates its vectors by a Hadamard matrix and rounds blocks of 32.
    require(!indexed || (is_power_of_two(h.indexer_head_dim) && h.indexer_head_dim >= 32), problems,
            fmt::format("indexer key length {} must be a power of two of at least 32",
                        h.indexer_head_dim));
}

}  // namespace

std::span<const HyperField> hyper_fields() { return kFields; }

std::string range_problem(const HyperField& field, double value) {
    if (std::isfinite(value) && value >= field.min && value <= field.max) return {};
    return fmt::format("is {}, must be {} to {}", value, field.min, field.max);
}

void check_hyperparameters(ModelKind kind, const Hyperparameters& h,
                           std::vector<std::string>& problems) {
    require(h.n_heads * h.head_dim % h.n_output_groups == 0, problems,
            fmt::format("{} heads of {} do not divide into {} output groups", h.n_heads, h.head_dim,
                        h.n_output_groups));
    if (kind == ModelKind::mtp) return;
    require(
        h.n_experts_used <= h.n_experts, problems,
        fmt::format("expert_used_count {} exceeds expert_count {}", h.n_experts_used, h.n_experts));
    require(h.n_hash_layers <= h.n_layers, problems,
            fmt::format("hash_layer_count {} exceeds block_count {}", h.n_hash_layers, h.n_layers));
    require(h.rope_dim % 2 == 0 && h.rope_dim <= h.head_dim, problems,
            fmt::format("rope dimension count {} must be even and at most the key length {}",
                        h.rope_dim, h.head_dim));
    // The rounded part of a cached row is stored in FP8 blocks of 64 with one scale each.
    require(h.rope_dim > h.head_dim || (h.head_dim - h.rope_dim) % 64 == 0, problems,
            fmt::format("key length {} less rope dimension count {} must be a multiple of 64",
                        h.head_dim, h.rope_dim));
    check_layers(h, problems);
}

}  // namespace plimsoll
