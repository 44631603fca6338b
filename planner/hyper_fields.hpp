#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/model.hpp"

namespace plimsoll {

/// One hyperparameter: its spelling in files and the range that keeps every later product within 62
/// bits.
struct HyperField {
    std::string_view config_key;  // in inventories and synthetic case files
    std::string_view gguf_key;    // without the architecture prefix; empty: not stored by itself
    std::variant<std::uint32_t Hyperparameters::*, float Hyperparameters::*> member;
    double min;
    double max;
    bool in_mtp;        // determined by the draft head's tensors, hence also in its inventory
    bool wide_in_gguf;  // may be stored as u64 as well as u32
};

/// Every scalar hyperparameter. The two per-layer lists are handled by name: `swiglu_clamp` and
/// `compress_ratios`.
[[nodiscard]] std::span<const HyperField> hyper_fields();

/// A numeral or value in range, or what is wrong with it ("is 0, must be 1 to 1024").
[[nodiscard]] std::string range_problem(const HyperField& field, double value);

/// Adds one line for every rule between hyperparameters that `hyper` breaks. All scalar fields are
/// in range.
void check_hyperparameters(ModelKind kind, const Hyperparameters& hyper,
                           std::vector<std::string>& problems);

}  // namespace plimsoll
