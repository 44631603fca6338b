#include "planner/yaml_tree.hpp"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

TEST(YamlTree, RemembersLinesAndOrder) {
    const Result<YamlNode> tree = parse_yaml("b: 1\na:\n  - x\n  - 'y'\n", "t.yaml");
    ASSERT_TRUE(tree) << tree.error().message;
    ASSERT_EQ(tree->entries.size(), 2u);
    EXPECT_EQ(tree->entries[0].key, "b");
    const YamlNode& list = *tree->find("a");
    EXPECT_EQ(list.items[1].line, 4u);
    EXPECT_TRUE(list.items[1].quoted);
    EXPECT_FALSE(list.items[0].quoted);
}

TEST(YamlTree, RefusesWhatCouldGrowWhenRead) {
    for (const char* text :
         {"a: &x 1\n", "a: *x\n", "a: !!str 1\n", "? [1]\n: 2\n", "---\na: 1\n---\nb: 2\n", ""})
        EXPECT_FALSE(parse_yaml(text, "t.yaml")) << text;
}

TEST(YamlTree, StopsAtDeepNesting) {
    const std::string deep = "a: " + std::string(100, '[') + std::string(100, ']') + "\n";
    const Result<YamlNode> tree = parse_yaml(deep, "t.yaml");
    ASSERT_FALSE(tree);
    EXPECT_NE(tree.error().message.find("t.yaml:1:"), std::string::npos);
}

TEST(YamlReader, KeepsTheFirstProblemAndNamesUnknownKeysAtTheEnd) {
    const Result<YamlNode> tree = parse_yaml("n: x\nother: 2\n", "t.yaml");
    ASSERT_TRUE(tree);
    YamlReader reader(*tree, "t.yaml", "thing");
    std::uint64_t n = 7;
    reader.count("n", n, 0, 10);
    const Status status = reader.finish();
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("t.yaml:1:"), std::string::npos);
    EXPECT_EQ(n, 7u) << "a value that cannot be read leaves the default alone";
}

TEST(YamlTree, QuotesTheFileInOneShortLine) {
    const std::string odd = "\"odd\\ntext\\x1b[31m";
    for (const std::string& text :
         {"a: 1\n" + odd + "\": 2\n", "a: " + odd + std::string(1 << 20, 'x') + "\"\n"}) {
        const Result<YamlNode> tree = parse_yaml(text, "t.yaml");
        ASSERT_TRUE(tree) << tree.error().message;
        std::uint64_t a = 0;
        const Status status = YamlReader(*tree, "t.yaml", "test").count("a", a, 0, 9).finish();
        ASSERT_FALSE(status);
        const std::string& message = status.error().message;
        EXPECT_NE(message.find("odd\\x0atext\\x1b[31m"), std::string::npos) << message;
        EXPECT_LT(message.size(), 2'000u);
        EXPECT_EQ(message.find_first_of("\n\x1b"), std::string::npos);
    }
}

TEST(YamlScalar, QuotesWhatWouldReadBackAsSomethingElse) {
    for (const char* text :
         {"",     "true", "null", "~",  "12",       "1e3",  "a: b", "#x", "- x", "'",   "\"",
          "a\nb", "off",  " x",   "x ", "flash-q2", "0x1f", "{a}",  "\\", "ä",   "\x01"}) {
        const Result<YamlNode> tree = parse_yaml("key: " + yaml_scalar(text) + "\n", "t.yaml");
        ASSERT_TRUE(tree) << text << ": " << tree.error().message;
        EXPECT_EQ(tree->find("key")->scalar, text);
    }
}

}  // namespace
}  // namespace plimsoll
