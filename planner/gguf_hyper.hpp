#pragma once

#include "planner/gguf.hpp"
#include "planner/model.hpp"
#include "planner/problem_list.hpp"

namespace plimsoll {

/// Hyperparameters of a main file from its `deepseek4.*` keys, with the tokenizer tables checked
/// for presence, type and length. Values count only where `problems` stays empty.
[[nodiscard]] Hyperparameters hyper_from_metadata(const GgufFile& file, ProblemList& problems);

/// What a draft head's tensors determine, from their dims.
[[nodiscard]] Hyperparameters hyper_from_draft_head(const GgufFile& file, ProblemList& problems);

}  // namespace plimsoll
