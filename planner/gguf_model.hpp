#pragma once

#include "planner/gguf.hpp"
#include "planner/model.hpp"

namespace plimsoll {

/// The model that a checked header describes: `deepseek4.*` hyperparameters in range and
/// consistent, every tensor of every layer there with the dims that follow from them and a type the
/// engine reads. A draft head's hyperparameters come from its tensors. An error lists all that is
/// missing or wrong, in one line.
[[nodiscard]] Result<Model> model_from_gguf(const GgufFile& file);

}  // namespace plimsoll
