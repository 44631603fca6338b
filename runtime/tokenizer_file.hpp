#pragma once

#include "planner/gguf.hpp"
#include "runtime/tokenizer.hpp"

namespace plimsoll {

/// The tokenizer of a model file, from `tokenizer.ggml.{model,pre,tokens,merges,token_type}`.
/// Refuses other kinds of tokenizer by name, and tables that contradict themselves. Errors begin
/// with the file's path.
[[nodiscard]] Result<Tokenizer> load_tokenizer(const GgufFile& file);

}  // namespace plimsoll
