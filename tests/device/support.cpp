#include "tests/device/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/check.hpp"
#include "kernels/cuda/weight_planes.hpp"
#include "kernels/half.hpp"

namespace plimsoll::kernels::test {
namespace {

constexpr std::size_t kGuardBytes = 1024;
constexpr int kGuardValue = 0xCD;
constexpr int kPoisonValue = 0xFF;
constexpr std::size_t kExpertGapBytes = 256;

void check_cuda(cudaError_t status) {
    PLIMSOLL_KERNEL_CHECK(status == cudaSuccess, cudaGetErrorString(status));
}

bool all_guard(const std::byte* from) {
    std::vector<std::byte> guard(kGuardBytes);
    check_cuda(cudaMemcpy(guard.data(), from, kGuardBytes, cudaMemcpyDeviceToHost));
    return std::all_of(guard.begin(), guard.end(),
                       [](std::byte byte) { return byte == static_cast<std::byte>(kGuardValue); });
}

std::size_t align_up(std::size_t value, std::size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

/// Where a plane's part of a block lies in the file's block.
struct Field {
    std::uint32_t plane;
    std::uint32_t offset_bytes;  // in the file's block
    std::uint32_t size_bytes;
};

std::vector<Field> fields_of(WeightType type) {
    switch (type) {
        case WeightType::q8_0: return {{0, 2, 32}, {1, 0, 2}};
        case WeightType::q2_k: return {{0, 16, 64}, {1, 0, 16}, {2, 80, 4}};
        case WeightType::q4_k: return {{0, 16, 128}, {1, 0, 16}};
        case WeightType::iq2_xxs: return {{0, 2, 64}, {1, 0, 2}};
        default: return {{0, 0, info_of(type).block_bytes}};
    }
}

}  // namespace

std::string no_gpu_reason() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) return cudaGetErrorString(status);
    return count == 0 ? "no GPU is visible" : "";
}

DeviceBytes::DeviceBytes(std::size_t size_bytes) : size_bytes_(size_bytes) {
    void* allocation = nullptr;
    check_cuda(cudaMalloc(&allocation, size_bytes + 2 * kGuardBytes));
    allocation_ = static_cast<std::byte*>(allocation);
    check_cuda(cudaMemset(allocation_, kGuardValue, size_bytes + 2 * kGuardBytes));
    poison();
}

DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept
    : allocation_(std::exchange(other.allocation_, nullptr)), size_bytes_(other.size_bytes_) {}

DeviceBytes& DeviceBytes::operator=(DeviceBytes&& other) noexcept {
    std::swap(allocation_, other.allocation_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

DeviceBytes::~DeviceBytes() {
    if (allocation_ != nullptr) cudaFree(allocation_);
}

void* DeviceBytes::data() const { return allocation_ + kGuardBytes; }

void DeviceBytes::upload(const void* from, std::size_t n_bytes, std::size_t offset_bytes) {
    PLIMSOLL_KERNEL_CHECK(offset_bytes + n_bytes <= size_bytes_, "upload past the end");
    check_cuda(cudaMemcpy(allocation_ + kGuardBytes + offset_bytes, from, n_bytes,
                          cudaMemcpyHostToDevice));
}

void DeviceBytes::download(void* to, std::size_t n_bytes, std::size_t offset_bytes) const {
    PLIMSOLL_KERNEL_CHECK(offset_bytes + n_bytes <= size_bytes_, "download past the end");
    check_cuda(
        cudaMemcpy(to, allocation_ + kGuardBytes + offset_bytes, n_bytes, cudaMemcpyDeviceToHost));
}

void DeviceBytes::poison() {
    check_cuda(cudaMemset(allocation_ + kGuardBytes, kPoisonValue, size_bytes_));
}

bool DeviceBytes::guard_intact() const {
    return all_guard(allocation_) && all_guard(allocation_ + kGuardBytes + size_bytes_);
}

DeviceStep::DeviceStep() : state_(std::vector<cuda::StepState>(1)) {
    check_cuda(cudaStreamCreate(&stream_));
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0));
    n_multiprocessors_ = static_cast<std::uint32_t>(properties.multiProcessorCount);
}

DeviceStep::~DeviceStep() { cudaStreamDestroy(stream_); }

cuda::Launch DeviceStep::launch(std::uint64_t position, std::int32_t token) {
    check_cuda(cudaStreamSynchronize(stream_));
    cuda::StepState* state = state_.data();
    check_cuda(cudaMemcpy(&state->position, &position, sizeof(position), cudaMemcpyHostToDevice));
    check_cuda(cudaMemcpy(&state->token, &token, sizeof(token), cudaMemcpyHostToDevice));
    // A copy from pageable memory, or a fill, is ordered before no other stream's work.
    check_cuda(cudaDeviceSynchronize());
    return {.stream = stream_, .state = state, .n_multiprocessors = n_multiprocessors_};
}

void DeviceStep::wait() {
    const cudaError_t launched = cudaGetLastError();
    EXPECT_EQ(launched, cudaSuccess) << cudaGetErrorString(launched);
    const cudaError_t ran = cudaStreamSynchronize(stream_);
    // A failed kernel spoils the context: no later test could say anything.
    PLIMSOLL_KERNEL_CHECK(ran == cudaSuccess, cudaGetErrorString(ran));
    EXPECT_TRUE(state_.guard_intact()) << "written past StepState";
}

cuda::StepState DeviceStep::state() const { return state_.download()[0]; }

std::vector<std::byte> planes_of(WeightType type, std::span<const std::byte> file) {
    const std::size_t block_bytes = info_of(type).block_bytes;
    const std::size_t n_blocks = file.size() / block_bytes;
    const cuda::PlaneStarts starts = cuda::plane_starts(type, n_blocks);
    const std::uint64_t plane_start[3] = {0, starts.scales_bytes, starts.tail_bytes};
    std::vector<std::byte> planes(file.size());
    for (const Field& field : fields_of(type))
        for (std::size_t block = 0; block < n_blocks; ++block)
            for (std::size_t i = 0; i < field.size_bytes; ++i)
                planes[plane_start[field.plane] + block * field.size_bytes + i] =
                    file[block * block_bytes + field.offset_bytes + i];
    return planes;
}

DeviceWeight::DeviceWeight(std::span<const RandomWeight> experts)
    : stride_bytes_(align_up(experts[0].bytes.size(), 256) + kExpertGapBytes),
      bytes_(experts.size() == 1 ? experts[0].bytes.size() : experts.size() * stride_bytes_),
      matrix_(experts[0].matrix) {
    matrix_.data = bytes_.data();
    for (std::size_t expert = 0; expert < experts.size(); ++expert) {
        const std::vector<std::byte> planes = planes_of(matrix_.type, experts[expert].bytes);
        bytes_.upload(planes.data(), planes.size(), expert * stride_bytes_);
    }
}

void expect_close(std::span<const float> actual, std::span<const float> expected,
                  const Limits& limits, std::string_view what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    double dot = 0, actual_squares = 0, expected_squares = 0;
    for (std::size_t at = 0; at < actual.size(); ++at) {
        const double a = static_cast<double>(actual[at]);
        const double e = static_cast<double>(expected[at]);
        if (!std::isfinite(a) || !std::isfinite(e)) {
            ASSERT_TRUE(a == e || (std::isnan(a) && std::isnan(e)))
                << what << ": element " << at << " is " << a << ", expected " << e;
            continue;
        }
        dot += a * e;
        actual_squares += a * a;
        expected_squares += e * e;
    }
    const double rms = std::sqrt(expected_squares / static_cast<double>(actual.size()));
    std::size_t worst = 0;
    double error_max = 0, relative_max = 0;
    for (std::size_t at = 0; at < actual.size(); ++at) {
        const double e = static_cast<double>(expected[at]);
        const double error = std::fabs(static_cast<double>(actual[at]) - e);
        if (!(error > 0)) continue;
        const double relative = error / (std::fabs(e) + rms);
        error_max = std::max(error_max, error);
        if (relative > relative_max) {
            relative_max = relative;
            worst = at;
        }
    }
    const double norms = std::sqrt(actual_squares) * std::sqrt(expected_squares);
    const double cosine = norms > 0 ? dot / norms : (actual_squares == expected_squares ? 1 : 0);
    if (actual.empty()) return;
    EXPECT_TRUE(cosine >= limits.cosine_min && error_max <= limits.error_max &&
                relative_max <= limits.relative_max)
        << what << ": cosine " << cosine << " (least " << limits.cosine_min << "), error "
        << error_max << " (most " << limits.error_max << "), relative " << relative_max << " (most "
        << limits.relative_max << "); element " << worst << " of " << actual.size() << " is "
        << actual[worst] << ", expected " << expected[worst];
}

std::vector<std::uint16_t> f16_of(std::span<const float> values) {
    std::vector<std::uint16_t> halves(values.size());
    std::transform(values.begin(), values.end(), halves.begin(), f16_from_f32);
    return halves;
}

std::vector<float> f32_of(std::span<const std::uint16_t> halves) {
    std::vector<float> values(halves.size());
    std::transform(halves.begin(), halves.end(), values.begin(), f32_from_f16);
    return values;
}

}  // namespace plimsoll::kernels::test
