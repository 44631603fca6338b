#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "planner/plan.hpp"

namespace plimsoll {

/// Names of plan enums as plan files spell them, in the order of the enumerators.
[[nodiscard]] std::span<const std::string_view> region_class_names();
[[nodiscard]] std::span<const std::string_view> region_kind_names();
[[nodiscard]] std::span<const std::string_view> verdict_names();

[[nodiscard]] std::string_view region_kind_name(RegionKind kind);

/// A tensor's name inside its layer, as in a GGUF file: "attn_q_a.weight".
[[nodiscard]] std::string_view tensor_role_name(TensorRole role);
[[nodiscard]] std::optional<TensorRole> find_tensor_role(std::string_view name);

}  // namespace plimsoll
