#include "runtime/loader.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

/// A copy of the tiny model's file that a test may spoil. The plan is made from its header before.
class LoaderTest : public testing::Test {
protected:
    LoaderTest() {
        models_.main.path = folder_.path_of("model.gguf");
        std::filesystem::copy_file(models_of_case("tiny-q2").main.path, models_.main.path);
    }

    [[nodiscard]] Error error_of_loading() const {
        const Plan plan = plan_of_case(models_, {.chunk_tokens = 16});
        const Result<Engine> engine =
            Engine::create({.plan = &plan, .model = &models_.main, .n_threads = 2});
        if (engine) throw std::runtime_error("it loads");
        return engine.error();
    }

    TemporaryFolder folder_;
    CaseModels models_ = models_of_case("tiny-q2");
};

TEST_F(LoaderTest, NamesTheTensorAndTheOffsetWhereAFileWasCutOff) {
    const Tensor& last = models_.main.tensors.back();
    const std::uint64_t cut_bytes = last.file_offset_bytes + last.size_bytes / 2;
    std::filesystem::resize_file(models_.main.path, cut_bytes);
    const Error error = error_of_loading();
    EXPECT_EQ(error.kind, ErrorKind::io);
    EXPECT_NE(error.message.find(last.name), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("byte " + std::to_string(cut_bytes)), std::string::npos)
        << error.message;
}

TEST_F(LoaderTest, RefusesAFileThatGrewSinceThePlan) {
    std::filesystem::resize_file(models_.main.path, models_.main.file_bytes + 4096);
    EXPECT_EQ(error_of_loading().kind, ErrorKind::bad_file);
}

TEST_F(LoaderTest, RefusesAFileThatIsGone) {
    std::filesystem::remove(models_.main.path);
    const Error error = error_of_loading();
    EXPECT_EQ(error.kind, ErrorKind::bad_file);
    EXPECT_NE(error.message.find(models_.main.path), std::string::npos);
}

TEST_F(LoaderTest, RefusesAnotherModelThanThePlans) {
    const Plan plan = plan_of_case(models_, {.chunk_tokens = 16});
    const Result<Engine> engine =
        Engine::create({.plan = &plan, .model = &models_of_case("tiny-q4").main, .n_threads = 1});
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().kind, ErrorKind::bad_file);
}

TEST_F(LoaderTest, RefusesARoutingTableThatNamesNoExpert) {
    const Tensor& table = *models_.main.find(TensorRole::ffn_gate_tid2eid, 1);
    for (const std::int32_t id : {-1, static_cast<std::int32_t>(models_.main.hyper.n_experts)}) {
        std::fstream file(models_.main.path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(table.file_offset_bytes + 40));
        file.write(reinterpret_cast<const char*>(&id), sizeof(id));
        file.close();
        const Error error = error_of_loading();
        EXPECT_EQ(error.kind, ErrorKind::bad_file);
        EXPECT_NE(
            error.message.find(table.name + " names expert " + std::to_string(id) + " at entry 10"),
            std::string::npos)
            << error.message;
    }
}

TEST(Loader, FillsEveryByteFromTheFileWithAnyNumberOfThreads) {
    const Model& model = models_of_case("tiny-q2").main;
    std::ifstream file(model.path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    for (const std::uint32_t n_threads : {1u, 4u}) {
        std::vector<std::byte> memory(model.file_bytes);
        std::vector<TensorLoad> loads;
        std::uint64_t total_bytes = 0;
        for (const Tensor& tensor : model.tensors) {
            // An odd start, as an expert's share of a tensor has.
            const std::uint64_t skipped_bytes = tensor.size_bytes / 3;
            loads.push_back({&model, &tensor, skipped_bytes, tensor.size_bytes - skipped_bytes,
                             memory.data() + tensor.file_offset_bytes + skipped_bytes});
            total_bytes += loads.back().size_bytes;
        }
        std::uint64_t last_bytes = 0;
        const Status loaded =
            load_tensors(loads, n_threads, [&](std::uint64_t done_bytes, std::uint64_t total) {
                EXPECT_EQ(total, total_bytes);
                EXPECT_GE(done_bytes, last_bytes);
                last_bytes = done_bytes;
            });
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ(last_bytes, total_bytes);
        for (const TensorLoad& load : loads)
            EXPECT_EQ(std::memcmp(load.destination, bytes.data() + load.file_offset_bytes(),
                                  load.size_bytes),
                      0)
                << load.tensor->name;
    }
}

}  // namespace
}  // namespace plimsoll::test
