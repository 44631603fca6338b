#include "runtime/reply.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "runtime/text_edit.hpp"
#include "runtime/tokenizer.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

/// What may stand between `<` and a tag's name, the right one first.
constexpr std::string_view kTagMarkers[] = {kDsmlText, "DSML\uFF5C", ""};

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kParameterEnd = "</\uFF5CDSML\uFF5Cparameter>";
constexpr std::string_view kEscapedParameterEnd = "&lt;/\uFF5CDSML\uFF5Cparameter>";

std::string_view without_space_at_end(std::string_view text) {
    const std::size_t last = text.find_last_not_of(kSpace);
    return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

std::string unescape_attribute(std::string_view text) {
    constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
        {"&quot;", "\""}, {"&gt;", ">"},  {"&lt;", "<"},
        {"&apos;", "'"},  {"&amp;", "&"},  // last, so that what it uncovers is not decoded again
    };
    std::string out(text);
    for (const auto& [entity, character] : kEntities) out = replace_all(out, entity, character);
    return out;
}

/// Reads a block of calls from the front of a text. After a read that fails nothing else is
/// defined.
class CallReader {
public:
    explicit CallReader(std::string_view text) : rest_(text) {}

    std::optional<std::vector<ToolCall>> read() {
        std::vector<ToolCall> calls;
        if (!open("tool_calls") || !eat(">")) return std::nullopt;
        for (;;) {
            skip_space();
            if (close("tool_calls")) break;
            auto call = read_call();
            if (!call) return std::nullopt;
            calls.push_back(*std::move(call));
        }
        skip_space();
        if (calls.empty() || !rest_.empty()) return std::nullopt;
        return calls;
    }

private:
    std::optional<ToolCall> read_call() {
        if (!open("invoke")) return std::nullopt;
        const auto name = read_attribute("name");
        if (!name || !eat(">")) return std::nullopt;
        Json arguments = Json::object();
        for (;;) {
            skip_space();
            if (close("invoke")) break;
            if (!read_parameter(arguments)) return std::nullopt;
        }
        return ToolCall{
            .name = *name,
            .arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace)};
    }

    bool read_parameter(Json& arguments) {
        if (!open("parameter")) return false;
        const auto name = read_attribute("name");
        if (!name || arguments.contains(*name)) return false;
        const auto is_string = read_attribute("string");
        if (!eat(">")) return false;
        const auto value = read_value();
        if (!value) return false;
        if (!is_string || *is_string == "true") {
            arguments[*name] = replace_all(*value, kEscapedParameterEnd, kParameterEnd);
            return true;
        }
        if (*is_string != "false" || json_nests_deeper(*value, kJsonLevelsMax)) return false;
        Json parsed = Json::parse(*value, nullptr, false);
        if (parsed.is_discarded()) return false;
        arguments[*name] = std::move(parsed);
        return true;
    }

    /// Text up to the closing tag of a parameter, whichever spelling comes first; eats the tag.
    std::optional<std::string_view> read_value() {
        std::size_t first = std::string_view::npos;
        std::size_t tag_bytes = 0;
        for (const std::string_view marker : kTagMarkers) {
            const std::string tag = "</" + std::string(marker) + "parameter>";
            const std::size_t at = rest_.find(tag);
            if (at < first) {
                first = at;
                tag_bytes = tag.size();
            }
        }
        if (first == std::string_view::npos) return std::nullopt;
        const std::string_view value = rest_.substr(0, first);
        rest_.remove_prefix(first + tag_bytes);
        return value;
    }

    std::optional<std::string> read_attribute(std::string_view name) {
        skip_space();
        if (!eat(std::string(name) + "=\"")) return std::nullopt;
        const std::size_t end = rest_.find('"');
        if (end == std::string_view::npos) return std::nullopt;
        std::string value = unescape_attribute(rest_.substr(0, end));
        rest_.remove_prefix(end + 1);
        return value;
    }

    bool open(std::string_view name) { return eat_tag("<", name, ""); }
    bool close(std::string_view name) { return eat_tag("</", name, ">"); }

    bool eat_tag(std::string_view before, std::string_view name, std::string_view after) {
        return std::any_of(std::begin(kTagMarkers), std::end(kTagMarkers), [&](auto marker) {
            return eat(std::string(before).append(marker).append(name).append(after));
        });
    }

    bool eat(std::string_view text) {
        if (!rest_.starts_with(text)) return false;
        rest_.remove_prefix(text.size());
        return true;
    }

    void skip_space() {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpace), rest_.size()));
    }

    std::string_view rest_;
};

/// Where the first block of calls begins, in any spelling; npos where there is none.
std::size_t find_calls(std::string_view text) {
    std::size_t first = std::string_view::npos;
    for (const std::string_view marker : kTagMarkers) {
        first = std::min(first, text.find("<" + std::string(marker) + "tool_calls>"));
    }
    return first;
}

}  // namespace

Reply parse_reply(std::string_view text, ThinkMode think) {
    Reply reply;
    if (think != ThinkMode::off) {
        const std::size_t end = text.rfind(kThinkEndText);
        reply.reasoning = text.substr(0, end);
        if (end == std::string_view::npos) return reply;
        text.remove_prefix(end + kThinkEndText.size());
    }
    reply.content = text;
    const std::size_t begin = find_calls(text);
    if (begin == std::string_view::npos) return reply;
    auto calls = CallReader(text.substr(begin)).read();
    reply.malformed_calls = !calls.has_value();
    if (!calls) return reply;
    reply.content = without_space_at_end(text.substr(0, begin));
    reply.tool_calls = *std::move(calls);
    return reply;
}

}  // namespace plimsoll
