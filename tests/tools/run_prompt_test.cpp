#include "tools/run_prompt.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

/// The prompt that the standard input would give.
Result<std::string> prompt_from(const std::string& bytes, const RunOptions& options = {}) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::tmpfile(), &std::fclose);
    std::fwrite(bytes.data(), 1, bytes.size(), stream.get());
    std::rewind(stream.get());
    return read_prompt(options, PromptSource::standard_input, stream.get());
}

TEST(RunPrompt, DropsTheNewlineThatAFileEndsWith) {
    EXPECT_EQ(*prompt_from("two\nlines\n"), "two\nlines");
    EXPECT_EQ(*prompt_from("dos\r\n"), "dos");
    EXPECT_EQ(*prompt_from("as it is\n", {.raw = true}), "as it is\n");
}

TEST(RunPrompt, RefusesAnEmptyOne) {
    EXPECT_FALSE(prompt_from(""));
    EXPECT_FALSE(prompt_from("\n"));
    EXPECT_FALSE(read_prompt({.prompt = ""}, PromptSource::argument, nullptr));
}

TEST(RunPrompt, NamesTheFirstByteThatIsNoText) {
    const Result<std::string> refused = prompt_from("caf\xE9 au lait");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_file);
    EXPECT_EQ(refused.error().message, "standard input: byte 3 (0xe9) is not UTF-8 text");
}

TEST(RunPrompt, NamesAFileThatIsNotThere) {
    const Result<std::string> refused =
        read_prompt({.prompt_path = "/nonexistent/prompt.txt"}, PromptSource::file, nullptr);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::bad_file);
    EXPECT_NE(refused.error().message.find("/nonexistent/prompt.txt"), std::string::npos);
}

TEST(RunPrompt, RendersSystemAndUserTextByTheChatFormat) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const RunOptions options{.system = "Be brief."};
    const Result<std::vector<TokenId>> tokens =
        encode_prompt(options, ThinkMode::off, "Hi", tokenizer);
    ASSERT_TRUE(tokens);
    const std::string text = std::string(kBosText) + "Be brief." + std::string(kUserText) + "Hi" +
                             std::string(kAssistantText) + std::string(kThinkEndText);
    EXPECT_EQ(tokenizer.decode(*tokens), text);
}

TEST(RunPrompt, PutsOnlyBosBeforeARawOne) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const Result<std::vector<TokenId>> tokens =
        encode_prompt({.raw = true}, ThinkMode::off, "Hi", tokenizer);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(tokens->front(), tokenizer.special().bos);
    EXPECT_EQ(tokenizer.decode(*tokens), std::string(kBosText) + "Hi");
}

TEST(RunPrompt, MustLeaveRoomForAReplyInTheContext) {
    EXPECT_TRUE(check_prompt_length(99, 100, true));
    EXPECT_FALSE(check_prompt_length(100, 100, true));
    EXPECT_TRUE(check_prompt_length(100, 100, false));
    const Status refused = check_prompt_length(9000, 8192, true);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::usage);
    for (const char* part : {"9,000", "8,192", "809", "--ctx 9001"}) {
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << part;
    }
}

}  // namespace
}  // namespace plimsoll
