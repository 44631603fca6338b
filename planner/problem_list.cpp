#include "planner/problem_list.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/model.hpp"

namespace plimsoll {
namespace {

/// Problems told in full: a file that is wrong in a thousand places is told apart by the first few.
constexpr std::size_t kShownProblemsMax = 8;

constexpr std::string_view kLayerMark = "{}";

/// "0-2, 5" of ascending layers.
std::string ranges(const std::vector<std::int32_t>& layers) {
    std::string out;
    for (std::size_t first = 0; first < layers.size();) {
        std::size_t last = first;
        while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
        if (!out.empty()) out += ",";
        out += last == first ? fmt::format("{}", layers[first])
                             : fmt::format("{}-{}", layers[first], layers[last]);
        first = last + 1;
    }
    return out;
}

std::string name_of(const std::string& pattern, const std::vector<std::int32_t>& layers) {
    const std::size_t mark = pattern.find(kLayerMark);
    if (mark == std::string::npos) return pattern;
    const std::string range = ranges(layers);
    std::string name = pattern;
    name.replace(mark, kLayerMark.size(), layers.size() == 1 ? range : "{" + range + "}");
    return name;
}

}  // namespace

void ProblemList::miss_tensor(std::int32_t layer, std::string_view suffix,
                              std::string_view prefix) {
    const std::string pattern = layer == kNoLayer
                                    ? std::string(suffix)
                                    : fmt::format("{}.{}.{}", prefix, kLayerMark, suffix);
    tensors_[pattern].push_back(layer);
}

std::string ProblemList::text() const {
    std::vector<std::string> parts(
        problems_.begin(), problems_.begin() + static_cast<std::ptrdiff_t>(
                                                   std::min(problems_.size(), kShownProblemsMax)));
    if (problems_.size() > kShownProblemsMax)
        parts.push_back(fmt::format("{} more of the kind", problems_.size() - kShownProblemsMax));
    if (!keys_.empty()) parts.push_back(fmt::format("missing keys: {}", fmt::join(keys_, ", ")));
    if (!tensors_.empty()) {
        std::vector<std::string> names;
        for (const auto& [pattern, layers] : tensors_) names.push_back(name_of(pattern, layers));
        parts.push_back(fmt::format("missing tensors: {}", fmt::join(names, ", ")));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace plimsoll
