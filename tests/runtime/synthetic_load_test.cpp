#include "runtime/synthetic_load.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/runtime/engine_runs.hpp"

namespace plimsoll::test {
namespace {

constexpr std::uint64_t kSeedOfTheCase = 2;

TEST(SyntheticLoad, MakesWhatTheFileOfThatSeedHoldsWithAnyNumberOfThreads) {
    const Model& model = models_of_case("tiny-q2").main;
    for (const std::uint32_t n_threads : {1u, 4u}) {
        std::vector<std::byte> read(model.file_bytes), made(model.file_bytes);
        std::vector<TensorLoad> reads, makes;
        std::uint64_t total_bytes = 0;
        for (const Tensor& tensor : model.tensors) {
            // An odd start, as an expert's share of a tensor has.
            const std::uint64_t skipped_bytes = tensor.size_bytes / 3;
            const std::uint64_t at = tensor.file_offset_bytes + skipped_bytes;
            reads.push_back({&model, &tensor, skipped_bytes, tensor.size_bytes - skipped_bytes,
                             read.data() + at});
            makes.push_back(reads.back());
            makes.back().destination = made.data() + at;
            total_bytes += reads.back().size_bytes;
        }
        ASSERT_TRUE(load_tensors(reads, n_threads, [](std::uint64_t, std::uint64_t) {}));
        std::uint64_t last_bytes = 0;
        fill_synthetic(makes, kSeedOfTheCase, n_threads,
                       [&](std::uint64_t done_bytes, std::uint64_t total) {
                           EXPECT_EQ(total, total_bytes);
                           EXPECT_GE(done_bytes, last_bytes);
                           last_bytes = done_bytes;
                       });
        EXPECT_EQ(last_bytes, total_bytes);
        EXPECT_EQ(std::memcmp(read.data(), made.data(), read.size()), 0) << n_threads << " threads";
    }
}

TEST(SyntheticLoad, LetsAnEngineComputeAsTheFilesDoWithoutThem) {
    const CaseModels& models = models_of_case("tiny-q2");
    const std::vector<TokenId> tokens = {5, 17, 301, 42, 9};
    PlannedEngine from_files(models, plan_of_case(models, {.chunk_tokens = 16}));
    const Logits expected = feed(from_files, tokens);

    CaseModels absent = models;
    absent.main.path = "/nonexistent/model.gguf";
    const Plan plan = plan_of_case(absent, {.chunk_tokens = 16});
    Result<Engine> engine = Engine::create(
        {.plan = &plan, .model = &absent.main, .n_threads = 2, .synthetic_seed = kSeedOfTheCase});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const Result<std::span<const float>> logits = engine->feed(tokens);
    ASSERT_TRUE(logits.ok());
    EXPECT_EQ(std::memcmp(logits->data(), expected.main.data() + 4 * logits->size(),
                          logits->size_bytes()),
              0);
}

}  // namespace
}  // namespace plimsoll::test
