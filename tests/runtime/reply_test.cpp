#include "runtime/reply.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/tool_markup.hpp"

namespace plimsoll {
namespace {

TEST(Reply, SplitsReasoningAtTheLastEndOfThinking) {
    EXPECT_EQ(parse_reply("a</think>b</think>c", ThinkMode::high),
              (Reply{.reasoning = "a</think>b", .content = "c"}));
    EXPECT_EQ(parse_reply("cut off", ThinkMode::high), (Reply{.reasoning = "cut off"}));
    EXPECT_EQ(parse_reply("a</think>b", ThinkMode::off), (Reply{.content = "a</think>b"}));
}

TEST(Reply, ReadsBackTheCallsThatWereRendered) {
    const std::vector<ToolCall> calls = {
        {.name = "get_weather", .arguments = R"({"city":"Rome","days":3,"when":{"a":[1,null]}})"},
        {.name = "a\"<&>", .arguments = "{}"},
        {.name = "g",
         .arguments =
             R"({"x":"</｜DSML｜parameter> & < \"quoted\"\n","y":["</｜DSML｜parameter>"]})"},
    };
    std::vector<PromptPart> parts;
    append_part(PromptPart::Kind::text, "Let me look.", parts);
    render_tool_calls(calls, parts);
    EXPECT_EQ(parse_reply("r</think>" + text_of(parts), ThinkMode::high),
              (Reply{.reasoning = "r", .content = "Let me look.", .tool_calls = calls}));
}

TEST(Reply, IgnoresCallsInsideReasoning) {
    const std::string calls =
        "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"></｜DSML｜invoke></｜DSML｜tool_calls>";
    EXPECT_EQ(parse_reply(calls + "</think>done", ThinkMode::high),
              (Reply{.reasoning = calls, .content = "done"}));
}

TEST(Reply, ToleratesTagsWithoutTheMarkerOrItsFirstBar) {
    const Reply expected = {.content = "ok",
                            .tool_calls = {{.name = "f", .arguments = R"({"a":"1"})"}}};
    for (const std::string marker : {"｜DSML｜", "DSML｜", ""}) {
        const std::string text = "ok\n\n<" + marker + "tool_calls>\n<" + marker +
                                 "invoke name=\"f\">\n<" + marker + "parameter name=\"a\">1</" +
                                 marker + "parameter>\n</" + marker + "invoke>\n</" + marker +
                                 "tool_calls>";
        EXPECT_EQ(parse_reply(text, ThinkMode::off), expected) << marker;
    }
}

TEST(Reply, LeavesMarkupThatCannotBeReadInTheText) {
    const std::string whole =
        "ok\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
        "<｜DSML｜parameter name=\"a\" string=\"false\">[1]</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    ASSERT_EQ(parse_reply(whole, ThinkMode::off).tool_calls.size(), 1u);
    const std::size_t begin = whole.find("tool_calls>") + 11;
    for (std::size_t size = begin; size < whole.size(); ++size) {
        const std::string cut = whole.substr(0, size);
        EXPECT_EQ(parse_reply(cut, ThinkMode::off),
                  (Reply{.content = cut, .malformed_calls = true}));
    }
    for (const std::string& bad :
         {whole + " trailing", "<｜DSML｜tool_calls></｜DSML｜tool_calls>" + std::string(),
          "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" "
          "string=\"false\">"
          "[1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>" +
              std::string()}) {
        EXPECT_EQ(parse_reply(bad, ThinkMode::off),
                  (Reply{.content = bad, .malformed_calls = true}));
    }
}

TEST(Reply, RefusesJsonThatNestsTooDeep) {
    const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
    const std::string text =
        "<｜DSML｜tool_calls><｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"a\" "
        "string=\"false\">" +
        deep + "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>";
    EXPECT_TRUE(parse_reply(text, ThinkMode::off).malformed_calls);
}

}  // namespace
}  // namespace plimsoll
