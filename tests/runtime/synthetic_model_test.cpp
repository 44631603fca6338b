#include "runtime/synthetic_model.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "planner/gguf_model.hpp"
#include "runtime/synthetic_tokenizer.hpp"
#include "runtime/tokenizer_file.hpp"

namespace plimsoll {
namespace {

constexpr const char* kCase = R"({
 "name": "toy", "seed": 2, "n_tokens": 300,
 "recipe": {"token_embd": "F16", "ffn_gate_exps": "IQ2_XXS", "ffn_up_exps": "IQ2_XXS",
            "ffn_down_exps": "Q2_K", "hc_": "F16", "compressor": "F16", "default": "Q8_0"},
 "config": {"vocab_size": 384, "context_length": 16384, "embedding_length": 256, "block_count": 3,
  "head_count": 4, "key_length": 80, "rope_dimension_count": 16, "q_lora_rank": 64, "output_lora_rank": 32,
  "output_group_count": 2, "expert_count": 16, "expert_used_count": 4, "expert_feed_forward_length": 256,
  "expert_weights_scale": 1.5, "hash_layer_count": 1, "sliding_window": 32, "indexer_head_count": 16,
  "indexer_key_length": 32, "indexer_top_k": 512, "hc_count": 4, "hc_sinkhorn_iterations": 20,
  "hc_epsilon": 1e-06, "rms_epsilon": 1e-06, "swiglu_clamp": 10.0, "rope_freq_base": 10000.0,
  "compress_rope_freq_base": 160000.0, "rope_scaling_factor": 16.0, "rope_original_context_length": 1024,
  "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0, "compress_ratios": [0, 4, 128, 0]},
 "rounding": true})";

SyntheticCase toy_case() {
    Result<SyntheticCase> parsed = parse_case(kCase, "toy.json");
    if (!parsed) throw std::runtime_error(parsed.error().message);
    return std::move(*parsed);
}

/// The file of a model whose weights are all holes.
ByteSource source_of(const SyntheticModel& model) {
    ByteSource source;
    source.size_bytes = model.file_bytes;
    source.read = [&model](std::uint64_t offset_bytes, std::span<std::byte> into) {
        if (offset_bytes + into.size() > model.file_bytes) return false;
        std::memset(into.data(), 0, into.size());
        if (offset_bytes < model.header.size())
            std::memcpy(into.data(), model.header.data() + offset_bytes,
                        std::min(into.size(), model.header.size() - offset_bytes));
        return true;
    };
    return source;
}

TEST(SyntheticModel, ReadsBackAsTheModelItWasMadeFrom) {
    const SyntheticCase toy = toy_case();
    for (const Inventory* shape : {&toy.main, &toy.mtp}) {
        const Result<SyntheticModel> made = synthetic_model(*shape, toy.seed);
        ASSERT_TRUE(made) << made.error().message;
        const Result<GgufFile> file = parse_gguf(source_of(*made), "toy.gguf");
        ASSERT_TRUE(file) << file.error().message;
        const Result<Model> read = model_from_gguf(*file);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->kind, shape->kind);
        EXPECT_EQ(read->tensors, made->tensors);
        EXPECT_TRUE(read->notes.empty());
        if (shape->kind == ModelKind::main) {
            EXPECT_EQ(read->hyper, shape->hyper);
        }
    }
}

TEST(SyntheticModel, HasATokenizerThatLoads) {
    const Result<SyntheticModel> made = synthetic_model(toy_case().main, 1);
    ASSERT_TRUE(made);
    const Result<GgufFile> file = parse_gguf(source_of(*made), "toy.gguf");
    ASSERT_TRUE(file);
    const Result<Tokenizer> tokenizer = load_tokenizer(*file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const std::string text = "Any text, ünï¢ødé 🚢 included.";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode_text(text)), text);
}

TEST(SyntheticTokenizer, FillsVocabulariesOfAnySizeWithoutATokenTwice) {
    for (const std::uint32_t vocab_size : {265u, 266u, 384u, 1000u, 20'000u, 129'280u}) {
        Result<TokenizerTables> tables = synthetic_tokenizer(vocab_size);
        ASSERT_TRUE(tables);
        EXPECT_EQ(tables->tokens.size(), vocab_size);
        const Result<Tokenizer> tokenizer = Tokenizer::create(std::move(*tables));
        ASSERT_TRUE(tokenizer) << vocab_size << ": " << tokenizer.error().message;
        EXPECT_TRUE(tokenizer->notes().empty());
        EXPECT_EQ(tokenizer->special().bos, 0u);
        EXPECT_EQ(tokenizer->special().eos, 1u);
    }
    EXPECT_FALSE(synthetic_tokenizer(264));
}

TEST(SyntheticModel, RefusesStorageThatNoEngineReads) {
    SyntheticCase toy = toy_case();
    std::erase_if(toy.main.storage.rules,
                  [](const auto& rule) { return rule.first == "compressor"; });
    const Result<SyntheticModel> made = synthetic_model(toy.main, 1);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("ape.weight"), std::string::npos) << made.error().message;
}

TEST(SyntheticCase, RefusesFaultsByKey) {
    const std::pair<const char*, const char*> kFaults[] = {
        {"\"seed\": 2", "\"seed\": -2"},
        {"\"block_count\": 3", "\"block_count\": 0"},
        {"\"block_count\": 3", "\"block_count\": 2.5"},
        {"\"default\": \"Q8_0\"", "\"default\": \"Q9_9\""},
        {"\"compress_ratios\": [0, 4, 128, 0]", "\"compress_ratios\": [0, 5, 128]"},
        {"\"head_count\": 4", "\"head_count\": \"4\""}};
    for (const auto& [from, to] : kFaults) {
        std::string text = kCase;
        text.replace(text.find(from), std::strlen(from), to);
        const Result<SyntheticCase> parsed = parse_case(text, "toy.json");
        ASSERT_FALSE(parsed) << to;
        EXPECT_EQ(parsed.error().kind, ErrorKind::bad_file);
        EXPECT_NE(parsed.error().message.find("toy.json"), std::string::npos);
    }
    EXPECT_FALSE(parse_case("{", "x.json"));
    EXPECT_FALSE(parse_case("[]", "x.json"));
}

}  // namespace
}  // namespace plimsoll
