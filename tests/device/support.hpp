#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.hpp"
#include "kernels/ops.hpp"
#include "tests/kernels/support.hpp"

/// What tests of kernels/cuda need of a device. Plain CUDA runtime calls: the same tests run on a
/// GPU and, compiled with tests/emulation, on the CPU.
namespace plimsoll::kernels::test {

/// Why tests cannot run here; empty where a GPU is visible.
[[nodiscard]] std::string no_gpu_reason();

/// First line of a test that needs a GPU.
#define PLIMSOLL_NEEDS_GPU()                                                    \
    do {                                                                        \
        const std::string reason_ = ::plimsoll::kernels::test::no_gpu_reason(); \
        if (!reason_.empty()) GTEST_SKIP() << reason_;                          \
    } while (false)

/// Device memory aligned to 256 bytes between two guards. Its bytes are 0xFF at first: NaN as
/// float32 and float16, -1 as an integer.
class DeviceBytes {
public:
    explicit DeviceBytes(std::size_t size_bytes);
    DeviceBytes(DeviceBytes&& other) noexcept;
    DeviceBytes& operator=(DeviceBytes&& other) noexcept;
    DeviceBytes(const DeviceBytes&) = delete;
    DeviceBytes& operator=(const DeviceBytes&) = delete;
    ~DeviceBytes();

    [[nodiscard]] void* data() const;
    [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
    void upload(const void* from, std::size_t n_bytes, std::size_t offset_bytes = 0);
    void download(void* to, std::size_t n_bytes, std::size_t offset_bytes = 0) const;
    /// Every byte 0xFF again.
    void poison();
    /// True where nothing was written before or behind the bytes.
    [[nodiscard]] bool guard_intact() const;

private:
    std::byte* allocation_ = nullptr;
    std::size_t size_bytes_ = 0;
};

/// An array of T on the device.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(std::size_t n) : bytes_(n * sizeof(T)), n_(n) {}
    explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
        upload(values);
    }

    [[nodiscard]] T* data() const { return static_cast<T*>(bytes_.data()); }
    [[nodiscard]] std::size_t size() const { return n_; }
    void upload(std::span<const T> values, std::size_t first = 0) {
        bytes_.upload(values.data(), values.size_bytes(), first * sizeof(T));
    }
    [[nodiscard]] std::vector<T> download() const {
        std::vector<T> values(n_);
        bytes_.download(values.data(), n_ * sizeof(T));
        return values;
    }
    void poison() { bytes_.poison(); }
    [[nodiscard]] bool guard_intact() const { return bytes_.guard_intact(); }

private:
    DeviceBytes bytes_;
    std::size_t n_;
};

/// A stream and a StepState, and launches on them.
class DeviceStep {
public:
    DeviceStep();
    DeviceStep(const DeviceStep&) = delete;
    DeviceStep& operator=(const DeviceStep&) = delete;
    ~DeviceStep();

    /// Writes position and token to the device's state; counters stay as kernels left them.
    [[nodiscard]] cuda::Launch launch(std::uint64_t position = 0, std::int32_t token = 0);
    /// Until all launches have ended. A CUDA error, or a write past the state, fails the test.
    void wait();
    [[nodiscard]] cuda::StepState state() const;

private:
    cudaStream_t stream_ = nullptr;
    DeviceArray<cuda::StepState> state_;
    std::uint32_t n_multiprocessors_ = 0;
};

/// Bytes of a matrix as the file stores them, laid out in planes (kernels/cuda/weight_planes.hpp)
/// by the host, apart from the kernel that does so on the device.
[[nodiscard]] std::vector<std::byte> planes_of(WeightType type, std::span<const std::byte> file);

/// One matrix or several of one shape (experts), in planes on the device.
class DeviceWeight {
public:
    explicit DeviceWeight(const RandomWeight& weight) : DeviceWeight(std::span(&weight, 1)) {}
    explicit DeviceWeight(std::span<const RandomWeight> experts);

    [[nodiscard]] WeightMatrix matrix() const { return matrix_; }  // of expert 0
    /// From an expert's matrix to the next one's: a multiple of 256 that leaves a gap.
    [[nodiscard]] std::uint64_t stride_bytes() const { return stride_bytes_; }
    [[nodiscard]] bool guard_intact() const { return bytes_.guard_intact(); }

private:
    std::uint64_t stride_bytes_;
    DeviceBytes bytes_;
    WeightMatrix matrix_;
};

/// How far `actual` may be from `expected`.
struct Limits {
    double cosine_min = -2;       // over all elements
    double error_max = 1e300;     // |a - e|
    double relative_max = 1e300;  // |a - e| / (|e| + rms of all e)
};
/// Fails, with `what` (the parameters) in the message, where a limit is passed, a size differs, or
/// infinities and NaN are not in the same places.
void expect_close(std::span<const float> actual, std::span<const float> expected,
                  const Limits& limits, std::string_view what);
/// The same values bit for bit, integers or rows of bytes.
template <class T>
void expect_equal(const std::vector<T>& actual, const std::vector<T>& expected,
                  std::string_view what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (std::size_t at = 0; at < actual.size(); ++at)
        ASSERT_TRUE(std::memcmp(&actual[at], &expected[at], sizeof(T)) == 0)
            << what << ": element " << at << " is " << testing::PrintToString(actual[at])
            << ", expected " << testing::PrintToString(expected[at]);
}

[[nodiscard]] std::vector<std::uint16_t> f16_of(std::span<const float> values);
[[nodiscard]] std::vector<float> f32_of(std::span<const std::uint16_t> halves);

}  // namespace plimsoll::kernels::test
