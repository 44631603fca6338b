#include "runtime/gpu_loader.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "kernels/half.hpp"
#include "planner/units.hpp"
#include "runtime/load_chunks.hpp"
#include "runtime/synthetic.hpp"
#include "tests/device/support.hpp"

namespace plimsoll::test {
namespace {

using namespace kernels::test;
namespace c = kernels::cuda;

constexpr std::uint64_t kSeed = 31;
constexpr std::uint32_t kExperts = 4;

struct Row {
    const char* name;
    TensorRole role;
    TensorType type;
    std::vector<std::uint64_t> dims;
};

/// A file of synthetic tensors of every type and where each comes to lie on the device: experts one
/// by one, as in slots.
class SmallModel {
public:
    SmallModel() {
        path_ = (std::filesystem::temp_directory_path() / "plimsoll-loader-XXXXXX").string();
        const int descriptor = mkstemp(path_.data());
        if (descriptor >= 0) close(descriptor);
        model_.path = path_;
        model_.hyper.n_experts = kExperts;
        const Row kRows[] = {
            {"token_embd.weight", TensorRole::token_embd, TensorType::f16, {256, 37}},
            {"blk.0.attn_norm.weight", TensorRole::attn_norm, TensorType::f32, {259}},
            {"blk.0.ffn_gate_tid2eid.weight",
             TensorRole::ffn_gate_tid2eid,
             TensorType::i32,
             {3, 37}},
            {"blk.0.ffn_gate_exps.weight",
             TensorRole::ffn_gate_exps,
             TensorType::iq2_xxs,
             {512, 19, kExperts}},
            {"blk.0.ffn_down_exps.weight",
             TensorRole::ffn_down_exps,
             TensorType::q2_k,
             {256, 33, kExperts}},
            {"blk.1.ffn_down_exps.weight",
             TensorRole::ffn_down_exps,
             TensorType::q4_k,
             {256, 21, kExperts}},
            {"output.weight", TensorRole::output, TensorType::q8_0, {256, 301}},
        };
        std::string bytes(600, '\1');
        for (const Row& row : kRows) {
            Tensor tensor{.name = row.name, .role = row.role, .type = row.type, .dims = row.dims};
            std::uint64_t n_elements = 1;
            for (const std::uint64_t dim : row.dims) n_elements *= dim;
            tensor.file_offset_bytes = align_up(bytes.size(), 32);
            tensor.size_bytes = storage_bytes(row.type, n_elements);
            bytes.resize(tensor.file_offset_bytes + tensor.size_bytes);
            SyntheticTensor(kSeed, tensor, kExperts)
                .fill(0,
                      std::as_writable_bytes(std::span(bytes)).subspan(tensor.file_offset_bytes));
            model_.tensors.push_back(std::move(tensor));
        }
        model_.file_bytes = bytes.size();
        std::ofstream(path_, std::ios::binary) << bytes;
        bytes_ = std::move(bytes);
        for (const Tensor& tensor : model_.tensors) {
            const std::uint64_t n = tensor.dims.size() == 3 ? kExperts : 1;
            for (std::uint64_t expert = 0; expert < n; ++expert) {
                loads_.push_back({&model_, &tensor, expert * (tensor.size_bytes / n),
                                  tensor.size_bytes / n, nullptr});
                size_bytes_ += align_up(tensor.size_bytes / n, 256) + 256;
            }
        }
    }
    SmallModel(const SmallModel&) = delete;
    SmallModel& operator=(const SmallModel&) = delete;
    ~SmallModel() { std::filesystem::remove(path_); }

    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
    [[nodiscard]] const Model& model() const { return model_; }
    [[nodiscard]] const std::string& path() const { return path_; }

    /// The loads into memory at `base`, the last tensors first.
    [[nodiscard]] std::vector<TensorLoad> loads_into(std::byte* base) const {
        std::vector<TensorLoad> loads(loads_.rbegin(), loads_.rend());
        for (TensorLoad& load : loads) {
            load.destination = base;
            base += align_up(load.size_bytes, 256) + 256;
        }
        return loads;
    }

    /// What must lie in that memory, whose gaps stay as they were.
    [[nodiscard]] std::vector<std::byte> expected() const {
        std::vector<std::byte> out(size_bytes_, std::byte{0xFF});
        for (const TensorLoad& load : loads_into(out.data())) {
            const auto file =
                std::as_bytes(std::span(bytes_)).subspan(load.file_offset_bytes(), load.size_bytes);
            std::vector<std::byte> planes(file.begin(), file.end());
            if (load.tensor->type != TensorType::i32)
                planes = planes_of(static_cast<kernels::WeightType>(load.tensor->type), file);
            std::copy(planes.begin(), planes.end(), load.destination);
        }
        return out;
    }

private:
    std::string path_;
    std::string bytes_;
    Model model_;
    std::vector<TensorLoad> loads_;
    std::uint64_t size_bytes_ = 0;
};

/// A device with the memory that a load passes.
struct LoadingPlace {
    LoadingPlace(std::uint64_t ring_bytes, std::uint64_t scratch_bytes) : scratch(scratch_bytes) {
        const c::DeviceProblem opened = c::Device::open(0, device);
        EXPECT_TRUE(opened.is_none()) << opened.message;
        const c::DeviceProblem pinned = device.allocate_pinned(ring_bytes, ring);
        EXPECT_TRUE(pinned.is_none()) << pinned.message;
    }
    [[nodiscard]] GpuLoadSource source(std::span<const TensorLoad> loads) {
        return {.loads = loads,
                .fp16_fills = {},
                .ring = {ring.data(), ring.size_bytes()},
                .scratch = {static_cast<std::byte*>(scratch.data()), scratch.size_bytes()},
                .n_threads = 3,
                .synthetic_seed = std::nullopt};
    }

    c::Device device;
    c::DeviceMemory ring;
    DeviceBytes scratch;
};

class GpuLoader : public testing::Test {
protected:
    void SetUp() override { PLIMSOLL_NEEDS_GPU(); }
    SmallModel small_;
};

TEST_F(GpuLoader, LaysEveryTensorInPlanesThroughAnySlots) {
    const std::vector<std::byte> expected = small_.expected();
    for (const bool is_synthetic : {false, true})
        for (const auto& [ring_bytes, scratch_bytes] :
             {std::pair<std::uint64_t, std::uint64_t>{1 << 20, 1 << 21},
              {300'000, 200'000},    // eight slots
              {40'000, 1 << 20},     // two
              {1 << 20, 17'000}}) {  // one
            LoadingPlace place(ring_bytes, scratch_bytes);
            DeviceBytes memory(small_.size_bytes());
            const auto loads = small_.loads_into(static_cast<std::byte*>(memory.data()));
            GpuLoadSource source = place.source(loads);
            if (is_synthetic) source.synthetic_seed = kSeed;
            std::uint64_t told_bytes = 0, told_total_bytes = 0;
            const Result<GpuLoadFigures> loaded = load_to_gpu(
                place.device, source, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
                    EXPECT_GE(done_bytes, told_bytes);
                    told_bytes = done_bytes;
                    told_total_bytes = total_bytes;
                });
            ASSERT_TRUE(loaded) << loaded.error().message;
            SCOPED_TRACE(loaded->text());
            EXPECT_EQ(told_bytes, loaded->size_bytes);
            EXPECT_EQ(told_total_bytes, loaded->size_bytes);
            std::vector<std::byte> made(memory.size_bytes());
            memory.download(made.data(), made.size());
            expect_equal(made, expected, "ring of " + std::to_string(ring_bytes));
            EXPECT_TRUE(memory.guard_intact());
            EXPECT_TRUE(place.scratch.guard_intact());
        }
}

TEST_F(GpuLoader, FillsTheFp16CacheFromThePlanes) {
    LoadingPlace place(1 << 20, 1 << 20);
    DeviceBytes memory(small_.size_bytes());
    const auto loads = small_.loads_into(static_cast<std::byte*>(memory.data()));
    const TensorLoad& output = loads.front();
    ASSERT_EQ(output.tensor->name, "output.weight");
    DeviceArray<std::uint16_t> halves(256 * 301);
    const kernels::WeightMatrix weight{output.destination, kernels::WeightType::q8_0, 256, 301};
    const Fp16Fill fill{weight, reinterpret_cast<std::byte*>(halves.data())};
    GpuLoadSource source = place.source(loads);
    source.fp16_fills = {&fill, 1};
    const LoadProgress silent = [](std::uint64_t, std::uint64_t) {};
    ASSERT_TRUE(load_to_gpu(place.device, source, silent));
    std::vector<std::byte> file(output.size_bytes);
    SyntheticTensor(kSeed, *output.tensor, kExperts).fill(0, file);
    std::vector<std::uint16_t> expected(256 * 301);
    kernels::cpu::dequantize_f16(
        {{file.data(), kernels::WeightType::q8_0, 256, 301}, 0, 301, expected.data()},
        kernels::Workers(1));
    expect_close(f32_of(halves.download()), f32_of(expected), {.relative_max = 1e-3}, "float16");
}

TEST_F(GpuLoader, NamesTheTensorAndTheOffsetWhereAFileWasCutOff) {
    const Tensor& last = small_.model().tensors.back();
    const std::uint64_t cut_bytes = last.file_offset_bytes + last.size_bytes / 2;
    std::filesystem::resize_file(small_.path(), cut_bytes);
    LoadingPlace place(300'000, 200'000);
    DeviceBytes memory(small_.size_bytes());
    const auto loads = small_.loads_into(static_cast<std::byte*>(memory.data()));
    const Result<GpuLoadFigures> loaded =
        load_to_gpu(place.device, place.source(loads), [](std::uint64_t, std::uint64_t) {});
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind, ErrorKind::io);
    EXPECT_NE(loaded.error().message.find(last.name), std::string::npos) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find("byte " + std::to_string(cut_bytes)), std::string::npos)
        << loaded.error().message;
}

TEST_F(GpuLoader, RefusesARoutingTableThatNamesNoExpert) {
    const Tensor& table = small_.model().tensors[2];
    ASSERT_EQ(table.type, TensorType::i32);
    std::fstream file(small_.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(table.file_offset_bytes + 40));
    const std::int32_t id = kExperts;
    file.write(reinterpret_cast<const char*>(&id), sizeof(id));
    file.close();
    LoadingPlace place(300'000, 200'000);
    DeviceBytes memory(small_.size_bytes());
    const auto loads = small_.loads_into(static_cast<std::byte*>(memory.data()));
    const Result<GpuLoadFigures> loaded =
        load_to_gpu(place.device, place.source(loads), [](std::uint64_t, std::uint64_t) {});
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind, ErrorKind::bad_file);
    EXPECT_NE(loaded.error().message.find("names expert 4 at entry 10"), std::string::npos)
        << loaded.error().message;
}

}  // namespace
}  // namespace plimsoll::test
