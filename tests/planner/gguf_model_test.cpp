#include "planner/gguf_model.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "planner/tensor_table.hpp"
#include "tests/planner/model_header.hpp"

namespace plimsoll::test {
namespace {

Result<Model> read(const RawHeader& header) {
    Result<GgufFile> file = parse_gguf(source_of(header), "folder/case.gguf");
    if (!file) return file.error();
    return model_from_gguf(*file);
}

/// The message that a spoiled header is refused with.
std::string refusal_of(const RawHeader& header) {
    const Result<Model> model = read(header);
    EXPECT_FALSE(model.ok());
    if (model) return {};
    EXPECT_EQ(model.error().kind, ErrorKind::bad_file);
    EXPECT_EQ(model.error().message.rfind("folder/case.gguf: ", 0), 0u) << model.error().message;
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
    return model.error().message;
}

void expect_told(const RawHeader& header, const std::vector<std::string>& parts) {
    const std::string message = refusal_of(header);
    for (const std::string& part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

RawHeader small_header() { return model_header(small_inventory()); }

TEST(GgufModel, IgnoresTensorsItDoesNotKnowWithOneNote) {
    RawHeader header = small_header();
    for (const char* name : {"extra.weight", "more.weight"}) {
        header.tensors.push_back({name, {32}, 0, header.data_bytes});
        header.data_bytes += 128;
    }
    const Result<Model> model = read(header);
    ASSERT_TRUE(model.ok()) << model.error().message;
    ASSERT_EQ(model->notes.size(), 1u);
    EXPECT_NE(model->notes[0].find("2 tensors"), std::string::npos) << model->notes[0];
    EXPECT_NE(model->notes[0].find("extra.weight"), std::string::npos) << model->notes[0];
}

TEST(GgufModel, TakesAFileWithoutTheOptionalBias) {
    RawHeader header = small_header();
    header.drop_tensor("blk.1.exp_probs_b.bias");
    const Result<Model> model = read(header);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->find(TensorRole::exp_probs_b, 1), nullptr);
}

TEST(GgufModel, TakesTensorsInAnyOrder) {
    RawHeader header = small_header();
    std::reverse(header.tensors.begin(), header.tensors.end());
    const Result<Model> model = read(header);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->find(TensorRole::attn_kv, 1)->name, "blk.1.attn_kv.weight");
}

TEST(GgufModel, TakesLongerLayerListsAndWideContextKeys) {
    RawHeader header = small_header();
    header.set("deepseek4.context_length", GgufValueType::u64, number(std::uint64_t{16'384}));
    header.set("deepseek4.attention.compress_ratios", GgufValueType::array,
               array_bytes(GgufValueType::u32, 3, number(4u) + number(128u) + number(0u)));
    header.set("deepseek4.swiglu_clamp_exp", GgufValueType::array,
               array_bytes(GgufValueType::f64, 2, number(10.0) + number(9.0)));
    const Result<Model> model = read(header);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->hyper.context_length_tokens, 16'384u);
    EXPECT_EQ(model->hyper.compress_ratios, (std::vector<std::uint32_t>{4, 128}));
    EXPECT_EQ(model->hyper.swiglu_clamp, (std::vector<float>{10, 9}));
}

TEST(GgufModel, ListsAllThatIsMissingWithRangesOfLayers) {
    RawHeader header = model_header(inventory_of("flash-q2"));
    header.drop_tensor("output_norm.weight");
    for (const int layer : {3, 4, 5, 9})
        header.drop_tensor(fmt::format("blk.{}.attn_q_a.weight", layer));
    for (int layer = 0; layer < 43; ++layer)
        header.drop_tensor(fmt::format("blk.{}.ffn_up_exps.weight", layer));
    header.drop_tensor("blk.7.attn_kv.weight");
    expect_told(header, {"missing tensors", "output_norm.weight", "blk.{3-5,9}.attn_q_a.weight",
                         "blk.{0-42}.ffn_up_exps.weight", "blk.7.attn_kv.weight"});
}

TEST(GgufModel, ListsAllMissingKeys) {
    RawHeader header = small_header();
    const std::vector<std::string> keys = {
        "deepseek4.block_count",          "deepseek4.expert_count",
        "deepseek4.rope.freq_base",       "deepseek4.expert_weights_norm",
        "deepseek4.attention.key_length", "tokenizer.ggml.merges",
        "tokenizer.ggml.tokens"};
    for (const std::string& key : keys) header.drop(key);
    expect_told(header, keys);
}

TEST(GgufModel, NeedsEveryKeyItReads) {
    const RawHeader whole = small_header();
    for (const RawEntry& entry : whole.entries) {
        if (entry.key.find("yarn_beta") != std::string::npos) continue;  // have a default
        RawHeader header = whole;
        header.drop(entry.key);
        expect_told(header, {entry.key});
    }
}

TEST(GgufModel, NeedsEveryTensorButTheOptionalOne) {
    const RawHeader whole = small_header();
    for (const RawTensor& tensor : whole.tensors) {
        if (tensor.name == "blk.1.exp_probs_b.bias") continue;
        RawHeader header = whole;
        header.drop_tensor(tensor.name);
        expect_told(header, {tensor.name});
    }
}

TEST(GgufModel, RefusesDimsThatDoNotFollow) {
    const RawHeader whole = small_header();
    for (std::size_t at = 0; at < whole.tensors.size(); ++at) {
        RawHeader header = whole;
        header.tensors[at].dims.push_back(1);
        expect_told(header, {"'" + whole.tensors[at].name + "'", "dims"});
    }
}

TEST(GgufModel, RefusesTypesTheEngineCannotRead) {
    const auto id = [](TensorType type) { return static_cast<std::uint32_t>(type); };
    struct Row {
        const char* tensor;
        TensorType type;
    };
    for (const Row& row :
         {Row{"output_norm.weight", TensorType::f16}, Row{"blk.0.attn_q_a.weight", TensorType::i32},
          Row{"blk.0.ffn_gate_tid2eid.weight", TensorType::f32},
          Row{"blk.1.hc_attn_fn.weight", TensorType::q8_0}}) {
        RawHeader header = small_header();
        header.tensor(row.tensor)->type = id(row.type);
        // The other type may take more room than the next tensor leaves.
        for (RawTensor& tensor : header.tensors) tensor.offset_bytes *= 16;
        header.data_bytes *= 16;
        expect_told(header,
                    {"'" + std::string(row.tensor) + "'", std::string(info_of(row.type).name)});
    }
}

TEST(GgufModel, RefusesGateAndUpOfDifferentTypes) {
    RawHeader header = small_header();
    for (RawTensor& tensor : header.tensors) tensor.offset_bytes *= 4;
    header.data_bytes *= 4;
    header.tensor("blk.1.ffn_up_exps.weight")->type = static_cast<std::uint32_t>(TensorType::q4_k);
    expect_told(header, {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight", "Q4_K"});
}

TEST(GgufModel, RefusesBlocksThatCrossRows) {
    Inventory inventory = small_inventory();
    inventory.hyper.q_lora_rank = 48;
    expect_told(model_header(inventory), {"attn_q_b.weight", "rows of 48", "Q8_0"});
}

TEST(GgufModel, RefusesValuesOutOfRange) {
    struct Row {
        const char* key;
        void (*spoil)(RawHeader& header, const char* key);
    };
    const auto zero = [](RawHeader& h, const char* key) { h.set_u32(key, 0); };
    const auto huge = [](RawHeader& h, const char* key) { h.set_u32(key, ~0u); };
    const auto text = [](RawHeader& h, const char* key) { h.set_string(key, "256"); };
    const auto negative = [](RawHeader& h, const char* key) {
        h.set(key, GgufValueType::i32, number(-1));
    };
    const auto nan = [](RawHeader& h, const char* key) {
        h.set_f32(key, std::numeric_limits<float>::quiet_NaN());
    };
    for (const Row& row : {
             Row{"deepseek4.block_count", zero},
             Row{"deepseek4.block_count", huge},
             Row{"deepseek4.vocab_size", huge},
             Row{"deepseek4.expert_count", text},
             Row{"deepseek4.expert_count", negative},
             Row{"deepseek4.expert_used_count", huge},
             Row{"deepseek4.hyper_connection.sinkhorn_iterations", huge},
             Row{"deepseek4.rope.freq_base", nan},
             Row{"deepseek4.rope.freq_base", negative},
             Row{"deepseek4.attention.layer_norm_rms_epsilon", text},
             Row{"deepseek4.attention.head_count_kv", zero},
             Row{"deepseek4.expert_shared_count", huge},
             Row{"deepseek4.expert_group_count", huge},
             Row{"deepseek4.expert_weights_norm", zero},
             Row{"deepseek4.attention.value_length", zero},
             Row{"deepseek4.attention.compress_ratios", zero},
             Row{"deepseek4.swiglu_clamp_exp", text},
             Row{"tokenizer.ggml.tokens", text},
         }) {
        RawHeader header = small_header();
        row.spoil(header, row.key);
        expect_told(header, {row.key});
    }
}

TEST(GgufModel, RefusesHyperparametersThatContradictEachOther) {
    struct Row {
        const char* key;
        std::uint32_t value;
        const char* told;
    };
    for (const Row& row : {Row{"deepseek4.expert_used_count", 17, "expert_used_count 17"},
                           Row{"deepseek4.hash_layer_count", 3, "hash_layer_count 3"},
                           Row{"deepseek4.rope.dimension_count", 15, "15"},
                           Row{"deepseek4.attention.output_group_count", 7, "7 output groups"},
                           Row{"deepseek4.attention.indexer.key_length", 48, "48"}}) {
        RawHeader header = small_header();
        header.set_u32(row.key, row.value);
        expect_told(header, {row.told});
    }
    RawHeader header = small_header();
    header.set("deepseek4.attention.compress_ratios", GgufValueType::array,
               array_bytes(GgufValueType::i32, 2, number(4) + number(64)));
    expect_told(header, {"compress_ratios[1] is 64"});
}

TEST(GgufModel, RefusesTokenTablesOfAnotherLength) {
    RawHeader header = small_header();
    header.set_u32("deepseek4.vocab_size", 299);
    expect_told(header, {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "300", "299"});
}

TEST(GgufModel, RefusesOtherArchitecturesAndPartsOfSplitFiles) {
    RawHeader header = small_header();
    header.set_string("general.architecture", "llama");
    expect_told(header, {"general.architecture", "llama", "deepseek4"});
    header.set_u32("general.architecture", 4);
    expect_told(header, {"general.architecture", "string"});
    header.drop("general.architecture");
    expect_told(header, {"general.architecture", "missing"});
    header = small_header();
    header.set("split.count", GgufValueType::u16, number(std::uint16_t{3}));
    expect_told(header, {"split.count"});
    header.set("split.count", GgufValueType::u16, number(std::uint16_t{1}));
    EXPECT_TRUE(read(header).ok());
}

TEST(GgufModel, TakesADraftHeadsNumbersFromItsTensors) {
    const Result<Model> model = read(model_header(inventory_of("flash-mtp")));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const Hyperparameters& hyper = model->hyper;
    EXPECT_EQ(model->kind, ModelKind::mtp);
    EXPECT_EQ(hyper.hidden_size, 4'096u);
    EXPECT_EQ(hyper.n_heads, 64u);
    EXPECT_EQ(hyper.head_dim, 512u);
    EXPECT_EQ(hyper.q_lora_rank, 1'024u);
    EXPECT_EQ(hyper.n_output_groups, 8u);
    EXPECT_EQ(hyper.output_lora_rank, 1'024u);
    EXPECT_EQ(hyper.n_experts, 256u);
    EXPECT_EQ(hyper.expert_ff_dim, 2'048u);
    EXPECT_EQ(hyper.n_streams, 4u);
}

TEST(GgufModel, RefusesADraftHeadThatLacksATensor) {
    const RawHeader whole = model_header(inventory_of("tiny-mtp"));
    for (const RawTensor& tensor : whole.tensors) {
        RawHeader header = whole;
        header.drop_tensor(tensor.name);
        expect_told(header, {tensor.name});
    }
}

TEST(GgufModel, RefusesADraftHeadWhoseDimsDoNotFit) {
    const RawHeader whole = model_header(inventory_of("tiny-mtp"));
    for (std::size_t at = 0; at < whole.tensors.size(); ++at) {
        RawHeader header = whole;
        header.tensors[at].dims.insert(header.tensors[at].dims.begin(), 1);
        expect_told(header, {"tensor '"});
    }
}

}  // namespace
}  // namespace plimsoll::test
