#include "tools/run_text.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

struct Written {
    std::string stream;  // what arrived there
    bool stopped = false;
};

/// Sends the tokens of `text` one by one.
Written write_tokens(const std::vector<TokenId>& tokens, std::vector<std::string> stops,
                     const Tokenizer& tokenizer) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::tmpfile(), &std::fclose);
    TextOutput output(stream.get(), tokenizer, StopStrings::create(std::move(stops)).value());
    Written written;
    for (const TokenId token : tokens) {
        written.stopped = output.push(token).value();
        if (written.stopped) break;
    }
    EXPECT_TRUE(output.finish());
    std::rewind(stream.get());
    for (int c = 0; (c = std::fgetc(stream.get())) != EOF;) {
        written.stream.push_back(static_cast<char>(c));
    }
    EXPECT_EQ(written.stream, output.text());
    return written;
}

TEST(TextOutput, WritesTheTextOfAllTokensButEos) {
    const Tokenizer tokenizer = test::small_tokenizer();
    std::vector<TokenId> tokens = tokenizer.encode_text("naïve — 🙂");
    tokens.push_back(tokenizer.special().eos);
    EXPECT_EQ(write_tokens(tokens, {}, tokenizer).stream, "naïve — 🙂");
}

TEST(TextOutput, EndsBeforeAStopString) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const Written written =
        write_tokens(tokenizer.encode_text("one STOP two"), {"STOP"}, tokenizer);
    EXPECT_TRUE(written.stopped);
    EXPECT_EQ(written.stream, "one ");
}

TEST(TextOutput, GivesBackWhatOnlyLookedLikeAStopString) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const Written written = write_tokens(tokenizer.encode_text("one ST"), {"STOP"}, tokenizer);
    EXPECT_FALSE(written.stopped);
    EXPECT_EQ(written.stream, "one ST");
}

TEST(TextOutput, ReportsAStreamThatTakesNoMore) {
    const Tokenizer tokenizer = test::small_tokenizer();
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"),
                                                               &std::fclose);
    ASSERT_NE(full, nullptr);
    TextOutput output(full.get(), tokenizer, StopStrings::create({}).value());
    const Result<bool> failed = output.push(tokenizer.encode_text("x").front());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace plimsoll
