#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// Everything that is wrong with a model file, told in one line. What is missing is listed whole;
/// tensors of many layers by their range, so that the line stays one that can be read.
class ProblemList {
public:
    void add(std::string problem) { problems_.push_back(std::move(problem)); }
    void miss_key(std::string key) { keys_.push_back(std::move(key)); }
    /// `layer` kNoLayer for a tensor of the model; `prefix` is "blk" or "mtp".
    void miss_tensor(std::int32_t layer, std::string_view suffix, std::string_view prefix);

    [[nodiscard]] bool empty() const {
        return problems_.empty() && keys_.empty() && tensors_.empty();
    }
    [[nodiscard]] std::string text() const;

private:
    std::vector<std::string> problems_;
    std::vector<std::string> keys_;
    std::map<std::string, std::vector<std::int32_t>>
        tensors_;  // "blk.{}.suffix" -> layers, ascending
};

}  // namespace plimsoll
