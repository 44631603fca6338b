#include "runtime/tokenizer_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/runtime/small_tokenizer.hpp"

namespace plimsoll {
namespace {

/// Builds the bytes of a GGUF v3 header of text and array entries.
class GgufBytes {
public:
    void text(const std::string& key, const std::string& value) {
        begin(key, 8);
        append_text(value);
    }
    void texts(const std::string& key, const std::vector<std::string>& values) {
        begin(key, 9);
        append<std::uint32_t>(8);
        append<std::uint64_t>(values.size());
        for (const std::string& value : values) append_text(value);
    }
    void integers(const std::string& key, const std::vector<std::int32_t>& values) {
        begin(key, 9);
        append<std::uint32_t>(5);
        append<std::uint64_t>(values.size());
        for (const std::int32_t value : values) append(value);
    }
    GgufFile file() const {
        GgufBytes whole;
        whole.bytes_ = "GGUF";
        whole.append<std::uint32_t>(3);
        whole.append<std::uint64_t>(0);
        whole.append<std::uint64_t>(count_);
        whole.bytes_ += bytes_;
        whole.bytes_.resize((whole.bytes_.size() + 31) / 32 * 32);
        const auto bytes = std::make_shared<std::string>(whole.bytes_);
        const auto read = [bytes](std::uint64_t offset, std::span<std::byte> into) {
            if (offset > bytes->size() || into.size() > bytes->size() - offset) return false;
            std::memcpy(into.data(), bytes->data() + offset, into.size());
            return true;
        };
        return parse_gguf({.size_bytes = bytes->size(), .read = read}, "model.gguf").value();
    }

private:
    template <class T>
    void append(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void append_text(const std::string& text) {
        append<std::uint64_t>(text.size());
        bytes_ += text;
    }
    void begin(const std::string& key, std::uint32_t type) {
        append_text(key);
        append(type);
        ++count_;
    }

    std::string bytes_;
    std::uint64_t count_ = 0;
};

GgufFile file_with(const std::string& pre, const TokenizerTables& tables) {
    GgufBytes bytes;
    bytes.text("tokenizer.ggml.model", "gpt2");
    if (!pre.empty()) bytes.text("tokenizer.ggml.pre", pre);
    bytes.texts("tokenizer.ggml.tokens", tables.tokens);
    bytes.texts("tokenizer.ggml.merges", tables.merges);
    bytes.integers("tokenizer.ggml.token_type", tables.token_types);
    return bytes.file();
}

TEST(TokenizerFile, LoadsTheTablesOfAFile) {
    const auto tokenizer = load_tokenizer(file_with("joyai-llm", test::small_tables()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode_text("the ship"), test::small_tokenizer().encode_text("the ship"));
}

TEST(TokenizerFile, RefusesAnotherPreTokeniserByName) {
    const auto tokenizer = load_tokenizer(file_with("llama-bpe", test::small_tables()));
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().message,
              "model.gguf: tokenizer.ggml.pre is 'llama-bpe'; only 'joyai-llm' is known");
    EXPECT_FALSE(load_tokenizer(file_with("", test::small_tables())).ok());
}

TEST(TokenizerFile, NamesTheFileAndTheEntryOfABadTable) {
    TokenizerTables tables = test::small_tables();
    tables.merges[3] = "th";
    const auto tokenizer = load_tokenizer(file_with("joyai-llm", tables));
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.error().message.rfind("model.gguf: tokenizer: merge 3", 0), 0u);
    tables = test::small_tables();
    tables.token_types[7] = -1;
    EXPECT_FALSE(load_tokenizer(file_with("joyai-llm", tables)).ok());
}

}  // namespace
}  // namespace plimsoll
