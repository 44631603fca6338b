#include "planner/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "planner/gguf_model.hpp"
#include "planner/tensor_table.hpp"
#include "planner/units.hpp"
#include "tests/planner/model_header.hpp"

namespace plimsoll::test {
namespace {

Model load_or_fail(const std::string& name) {
    Result<Model> model = load_model(name, PLIMSOLL_CONFIGS);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model ? std::move(*model) : Model{};
}

Result<Model> read(const RawHeader& header) {
    Result<GgufFile> file = parse_gguf(source_of(header), "folder/case.gguf");
    if (!file) return file.error();
    return model_from_gguf(*file);
}

std::uint64_t tensor_bytes(const Model& model) {
    std::uint64_t sum = 0;
    for (const Tensor& tensor : model.tensors) sum += tensor.size_bytes;
    return sum;
}

std::uint64_t tensor_bytes(const Model& model, WeightClass weight_class) {
    std::uint64_t sum = 0;
    for (const Tensor& tensor : model.tensors)
        if (info_of(tensor.role).weight_class == weight_class) sum += tensor.size_bytes;
    return sum;
}

// Figures of the published files: sums of their tensor tables.
TEST(Inventory, PublishedFilesHaveTheirTensorsToTheByte) {
    struct Published {
        const char* name;
        std::size_t tensors;
        std::uint64_t data_bytes;
        std::uint64_t tensor_bytes;
        std::uint64_t expert_bytes;
    };
    constexpr Published kPublished[] = {
        {"flash-q2", 1'328, 86'714'777'664, 86'714'775'900, 77'913'391'104},
        {"flash-q4", 1'328, 164'628'168'768, 164'628'167'004, 155'826'782'208},
        {"flash-mtp", 32, 3'807'600'192, 3'807'600'108, 3'623'878'656},
    };
    for (const Published& row : kPublished) {
        SCOPED_TRACE(row.name);
        const Model model = load_or_fail(row.name);
        EXPECT_EQ(model.tensors.size(), row.tensors);
        EXPECT_EQ(model.data_bytes, row.data_bytes);
        EXPECT_EQ(tensor_bytes(model), row.tensor_bytes);
        EXPECT_EQ(tensor_bytes(model, WeightClass::experts), row.expert_bytes);
        EXPECT_EQ(model.name, row.name);
        EXPECT_TRUE(model.published);
        EXPECT_EQ(model.file_bytes, 0u);
    }
}

TEST(Inventory, TypesOfTheQ2FileAddUpAsPublished) {
    const Model model = load_or_fail("flash-q2");
    std::map<std::string_view, std::pair<std::uint64_t, int>> by_type;
    for (const Tensor& tensor : model.tensors) {
        by_type[info_of(tensor.type).name].first += tensor.size_bytes;
        by_type[info_of(tensor.type).name].second += 1;
    }
    const std::map<std::string_view, std::pair<std::uint64_t, int>> expected = {
        {"IQ2_XXS", {47'613'739'008, 86}}, {"Q2_K", {30'299'652'096, 43}},
        {"Q8_0", {6'598'885'376, 345}},    {"F16", {2'191'345'664, 359}},
        {"I32", {9'308'160, 3}},           {"F32", {1'845'596, 492}},
    };
    EXPECT_EQ(by_type, expected);
}

TEST(Inventory, EveryOneOfTheModelsFolderLoads) {
    for (const char* name : {"mid", "mid-mtp", "pro-q2", "tiny", "tiny-mtp"})
        EXPECT_FALSE(load_or_fail(name).tensors.empty()) << name;
}

TEST(ExpertSize, IsThatOfThePublishedFilesInEveryLayer) {
    const Model q2 = load_or_fail("flash-q2"), q4 = load_or_fail("flash-q4"),
                mtp = load_or_fail("flash-mtp");
    for (std::int32_t layer = 0; layer < 43; ++layer) {
        const ExpertSize two = expert_size(q2, layer), four = expert_size(q4, layer);
        EXPECT_EQ(two.gate_bytes, 2'162'688u);
        EXPECT_EQ(two.up_bytes, 2'162'688u);
        EXPECT_EQ(two.down_bytes, 2'752'512u);
        EXPECT_EQ(two.slot_bytes, 7'077'888u);
        EXPECT_EQ(four.gate_bytes, 4'718'592u);
        EXPECT_EQ(four.slot_bytes, 14'155'776u);
    }
    EXPECT_EQ(expert_size(mtp, 0).slot_bytes, 14'155'776u);
}

TEST(Model, FindsEveryTensorOfEveryLayerAndNoOther) {
    for (const char* name : {"flash-q2", "flash-mtp", "tiny"}) {
        const Model model = load_or_fail(name);
        std::size_t found = 0;
        for (std::int32_t layer = kNoLayer; layer < 64; ++layer) {
            for (const TensorRoleInfo& row : tensor_roles()) {
                const Tensor* tensor = model.find(row.role, layer);
                if (tensor == nullptr) continue;
                ++found;
                EXPECT_EQ(tensor->role, row.role);
                EXPECT_EQ(tensor->layer, layer);
                EXPECT_EQ(tensor->name, tensor_name(model.kind, row.role, layer));
            }
        }
        EXPECT_EQ(found, model.tensors.size());
    }
}

TEST(Model, LayersHaveTheTensorsOfTheirKind) {
    const Model model = load_or_fail("flash-q2");
    for (std::int32_t layer = 0; layer < 43; ++layer) {
        const std::uint32_t ratio = model.hyper.compress_ratios[static_cast<std::size_t>(layer)];
        EXPECT_EQ(ratio, layer < 2 ? 0u : layer % 2 == 0 ? 4u : 128u);
        EXPECT_EQ(model.find(TensorRole::attn_compressor_kv, layer) != nullptr, ratio != 0);
        EXPECT_EQ(model.find(TensorRole::indexer_proj, layer) != nullptr, ratio == 4);
        EXPECT_EQ(model.find(TensorRole::ffn_gate_tid2eid, layer) != nullptr, layer < 3);
        EXPECT_EQ(model.find(TensorRole::exp_probs_b, layer) != nullptr, layer >= 3);
    }
    EXPECT_EQ(tensor_name(ModelKind::main, TensorRole::indexer_attn_q_b, 2),
              "blk.2.indexer.attn_q_b.weight");
    EXPECT_EQ(tensor_name(ModelKind::main, TensorRole::exp_probs_b, 3), "blk.3.exp_probs_b.bias");
    EXPECT_EQ(tensor_name(ModelKind::mtp, TensorRole::mtp_e_proj, 0), "mtp.0.e_proj.weight");
}

TEST(Model, OfAFileIsTheModelOfItsInventory) {
    for (const char* name : {"flash-q2", "flash-q4", "flash-mtp", "tiny"}) {
        SCOPED_TRACE(name);
        const Model inventory = load_or_fail(name);
        const Result<Model> model = read(model_header(inventory_of(name)));
        ASSERT_TRUE(model.ok()) << model.error().message;
        EXPECT_EQ(model->hyper, inventory.hyper);
        EXPECT_EQ(model->fingerprint, inventory.fingerprint);
        EXPECT_EQ(model->data_bytes, inventory.data_bytes);
        EXPECT_EQ(model->file_bytes, model->data_offset_bytes + model->data_bytes);
        EXPECT_EQ(model->name, "case");
        EXPECT_EQ(model->path, "folder/case.gguf");
        EXPECT_TRUE(model->notes.empty());
        ASSERT_EQ(model->tensors.size(), inventory.tensors.size());
        for (std::size_t at = 0; at < model->tensors.size(); ++at) {
            Tensor expected = inventory.tensors[at];
            expected.file_offset_bytes += model->data_offset_bytes;
            EXPECT_EQ(model->tensors[at], expected) << expected.name;
        }
    }
}

TEST(Model, FingerprintTellsModelsApart) {
    std::vector<std::uint64_t> prints;
    for (const char* name : {"flash-q2", "flash-q4", "flash-mtp", "mid", "tiny"})
        prints.push_back(load_or_fail(name).fingerprint);
    Inventory inventory = small_inventory();
    prints.push_back(model_from_inventory(inventory)->fingerprint);
    inventory.hyper.rope_freq_base += 1;
    prints.push_back(model_from_inventory(inventory)->fingerprint);
    inventory.storage.fallback = TensorType::f16;
    prints.push_back(model_from_inventory(inventory)->fingerprint);
    std::sort(prints.begin(), prints.end());
    EXPECT_EQ(std::adjacent_find(prints.begin(), prints.end()), prints.end());
}

TEST(LoadModel, NamesTheInventoriesWhereThereIsNoSuchModel) {
    const Result<Model> model = load_model("flash-q3", PLIMSOLL_CONFIGS);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().kind, ErrorKind::bad_file);
    for (const char* part : {"flash-q3", "flash-q2", "tiny"})
        EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
    for (const char* path : {"", ".", "/no/file.gguf", "../models/tiny", "no.yaml"}) {
        const Result<Model> other = load_model(path, PLIMSOLL_CONFIGS);
        ASSERT_FALSE(other.ok()) << path;
        EXPECT_EQ(other.error().kind, ErrorKind::bad_file);
        EXPECT_FALSE(other.error().message.empty());
    }
}

}  // namespace
}  // namespace plimsoll::test
