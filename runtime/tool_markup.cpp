#include "runtime/tool_markup.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/text_edit.hpp"

namespace plimsoll {
namespace {

using Kind = PromptPart::Kind;
using Json = nlohmann::ordered_json;  // arguments keep their order

/// Official wording of the block, up to the schemas and after them.
constexpr std::string_view kToolsHead = R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsTail =
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";

constexpr std::string_view kParameterEnd = "</｜DSML｜parameter>";
constexpr std::string_view kResultEnd = "</tool_result>";

/// `end` with its `<` spelled in a way that closes nothing.
std::string escape_end(std::string_view text, std::string_view end, std::string_view less_than) {
    return replace_all(text, end, std::string(less_than) + std::string(end.substr(1)));
}

std::string escape_attribute(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out.push_back(c);
        }
    }
    return out;
}

/// The value, or a discarded one where the text is no JSON or too deep.
Json parse_json(std::string_view text) {
    if (json_nests_deeper(text, kJsonLevelsMax)) return Json(Json::value_t::discarded);
    return Json::parse(text, nullptr, false);
}

std::string scalar_text(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// JSON as Python's serializer prints it: `{"a": 1, "b": [1, 2]}`, characters beyond ASCII as they
/// are.
void append_spaced(const Json& value, std::string& out) {
    if (!value.is_structured()) {
        out += scalar_text(value);
        return;
    }
    out += value.is_object() ? "{" : "[";
    bool first = true;
    for (const auto& item : value.items()) {
        if (!std::exchange(first, false)) out += ", ";
        if (value.is_object()) out += scalar_text(item.key()) + ": ";
        append_spaced(item.value(), out);
    }
    out += value.is_object() ? "}" : "]";
}

void append_parameter(const std::string& name, const Json& value, std::vector<PromptPart>& parts) {
    append_part(Kind::markup, "<｜DSML｜parameter name=\"", parts);
    append_part(Kind::text, escape_attribute(name), parts);
    append_part(Kind::markup,
                fmt::format("\" string=\"{}\">", value.is_string() ? "true" : "false"), parts);
    std::string text;
    if (value.is_string()) {
        text = escape_end(value.get_ref<const std::string&>(), kParameterEnd, "&lt;");
    } else {
        append_spaced(value, text);
        text = escape_end(text, kParameterEnd, "\\u003c");
    }
    append_part(Kind::text, text, parts);
    append_part(Kind::markup, kParameterEnd, parts);
    append_part(Kind::markup, "\n", parts);
}

}  // namespace

void append_part(Kind kind, std::string_view text, std::vector<PromptPart>& parts) {
    if (text.empty()) return;
    if (parts.empty() || parts.back().kind != kind) parts.push_back({kind, {}});
    parts.back().text += text;
}

Status declare_tools(std::span<const std::string> tools, std::vector<PromptPart>& parts) {
    append_part(Kind::markup, kToolsHead, parts);
    for (std::size_t i = 0; i < tools.size(); ++i) {
        const Json tool = parse_json(tools[i]);
        if (!tool.is_object()) {
            return Error{ErrorKind::usage,
                         fmt::format("tool {} is not a JSON object of at most {} levels", i,
                                     kJsonLevelsMax)};
        }
        const auto function = tool.find("function");
        const bool wrapped = function != tool.end() && function->is_object();
        std::string schema;
        append_spaced(wrapped ? *function : tool, schema);
        append_part(Kind::text, schema, parts);
        append_part(Kind::markup, "\n", parts);
    }
    append_part(Kind::markup, kToolsTail, parts);
    return ok_status();
}

void render_tool_calls(std::span<const ToolCall> calls, std::vector<PromptPart>& parts) {
    if (calls.empty()) return;
    append_part(Kind::markup, "\n\n<｜DSML｜tool_calls>\n", parts);
    for (const ToolCall& call : calls) {
        append_part(Kind::markup, "<｜DSML｜invoke name=\"", parts);
        append_part(Kind::text, escape_attribute(call.name), parts);
        append_part(Kind::markup, "\">\n", parts);
        const Json arguments = parse_json(call.arguments);
        if (arguments.is_object()) {
            for (const auto& item : arguments.items()) {
                append_parameter(item.key(), item.value(), parts);
            }
        } else {
            append_parameter("arguments", call.arguments, parts);
        }
        append_part(Kind::markup, "</｜DSML｜invoke>\n", parts);
    }
    append_part(Kind::markup, "</｜DSML｜tool_calls>", parts);
}

void render_tool_result(std::string_view content, std::vector<PromptPart>& parts) {
    append_part(Kind::markup, "<tool_result>", parts);
    append_part(Kind::text, escape_end(content, kResultEnd, "&lt;"), parts);
    append_part(Kind::markup, kResultEnd, parts);
}

}  // namespace plimsoll
